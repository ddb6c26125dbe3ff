"""The allocation model: parameters integrated out, allocations left."""
