"""The parameters of a distribution: what follows from their names, shapes and values alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, ClassVar, Self

import numpy as np

from bayesnmf.priors.arrays import as_array, namespace_of
from bayesnmf.types import Array


class Parameters:
    """A frozen dataclass of parameters that broadcast to the size of a factor.

    Attributes
    ----------
    exposed : str
        Name of the parameter to which a conditional adds the exposure; "" if there is none, as for rows on the simplex,
        whose exposure is a constant.
    by_row : tuple of str
        Names of the parameters with one number per row, (n, 1).
    """

    exposed: ClassVar[str] = ""
    by_row: ClassVar[tuple[str, ...]] = ()

    @property
    def exposed_parameter(self) -> Any:
        """The parameter to which a conditional adds the exposure; 0 for rows on the simplex."""
        return self.parameters[self.exposed] if self.exposed else 0.0

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    @property
    def settings(self) -> dict[str, Any]:
        """What describes the distribution besides its parameters, by name: words."""
        return {}

    @classmethod
    def of_parameters(cls, parameters: dict[str, Any], settings: dict[str, Any]) -> Self:
        """Return the distribution with these parameters and constants, and these settings."""
        return cls(**parameters, **settings)

    @property
    def constants(self) -> dict[str, Any]:
        """Arrays that describe the distribution besides its parameters, by name."""
        return {}

    def with_parameters(self, parameters: dict[str, Any]) -> Self:
        """Return the same distribution with other parameters."""
        return self.of_parameters({**parameters, **self.constants}, self.settings)

    def mapped(self, function: Callable[[Array], Array]) -> Self:
        """Return the distribution with a function applied to every parameter."""
        return self.with_parameters({name: function(as_array(value)) for name, value in self.parameters.items()})

    def sizes(self, size: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """Return the full size of every parameter, for a factor of the given size."""
        return {name: (size[0], 1) if name in self.by_row else size for name in self.parameters}

    def program_parameters(self, size: tuple[int, int]) -> dict[str, Array]:
        """Return the hyperparameters for the NumPyro program, for a factor of the given size."""
        values = {name: np.asarray(value, np.float64) for name, value in self.parameters.items()}
        for name in self.by_row:  # (n,) there, not (n, 1)
            values[name] = values[name].ravel() if values[name].size > 1 else values[name].reshape(())
        return values

    def broadcast(self, size: tuple[int, ...]) -> Self:
        """Return the same distribution with its parameters as arrays of full size (views)."""
        sizes, xp = self.sizes(size), namespace_of(*self.parameters.values()).xp
        return self.with_parameters(
            {name: xp.broadcast_to(value, sizes[name]) for name, value in self.parameters.items()}
        )

    def reordered(self, order: Array, axis: int) -> Self:
        """Return the distribution with its components in the given order along `axis`.

        Parameters shared by all components stay as they are.
        """

        def along(value: Any) -> bool:
            return np.ndim(value) >= -axis and np.shape(value)[axis] == len(order) and len(order) > 1

        named = self.parameters.items()
        return self.with_parameters({name: np.take(v, order, axis=axis) if along(v) else v for name, v in named})

    def rows(self, rows: Any) -> Self:
        """Return the distribution of the chosen rows; parameters shared by all rows stay as they are."""
        return self.mapped(lambda value: value[rows] if value.ndim == 2 and len(value) > 1 else value)
