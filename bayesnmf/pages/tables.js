// Tables that can be sorted by each column, filtered by words and downloaded, by buttons that only a script makes.
const FEWEST_TO_FILTER = 12;

// The number that a text begins with, in per cent or not, after "<"; NaN if it is none.
function numberOf(text) {
  return parseFloat(text.replace(/[,\s<−]/g, (sign) => (sign === "−" ? "-" : "")));
}

function compare(a, b, column) {
  const [one, other] = [a, b].map((row) => row.cells[column].textContent.trim());
  const [x, y] = [numberOf(one), numberOf(other)];
  if (!Number.isNaN(x) && !Number.isNaN(y) && x !== y) return x - y;
  return one.localeCompare(other, undefined, { numeric: true });
}

// "2.8 [2.7, 2.9]" is three columns, and "45.0%" is 0.45; other texts stay as they are.
function fieldsOf(text, ranged) {
  const found = text.match(/^(.*?)\s*\[(.*?), (.*?)\]$/);
  const parts = ranged ? (found ? found.slice(1) : [text, "", ""]) : [text];
  return parts.map((part) => {
    const shown = part.trim();
    if (/^-?[\d.,]+\s?%$/.test(shown)) return String(+(numberOf(shown) / 100).toPrecision(12));
    return /^-?\d{1,3}(,\d{3})+(\.\d+)?$/.test(shown) ? shown.replaceAll(",", "") : shown;
  });
}

function csvOf(table) {
  const rows = [...table.tBodies[0].rows];
  const headings = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
  const text = (row, column) => row.cells[column].textContent.trim();
  const ranged = headings.map((_, column) => rows.some((row) => /\[.*, .*\]$/.test(text(row, column))));
  const quoted = (field) => (/[",\n\r]/.test(field) ? `"${field.replaceAll('"', '""')}"` : field);
  const lines = [headings.flatMap((name, i) => (ranged[i] ? [name, `${name} low`, `${name} high`] : [name]))];
  for (const row of rows) lines.push(headings.flatMap((_, i) => fieldsOf(text(row, i), ranged[i])));
  return lines.map((fields) => fields.map(quoted).join(",")).join("\r\n");
}

function sortable(table) {
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    if (!cell.textContent.trim()) return;
    const button = made("button", { type: "button", class: "sort" }, ...cell.childNodes);
    button.addEventListener("click", () => {
      const up = cell.getAttribute("aria-sort") !== "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows].sort((a, b) => (up ? 1 : -1) * compare(a, b, column));
      table.tBodies[0].append(...rows);
    });
    cell.append(button);
  });
}

function filterOf(table) {
  const rows = [...table.tBodies[0].rows];
  const number = made("output", {}, `${rows.length} rows`);
  const input = made("input", { type: "search", placeholder: "filter", "aria-label": "Show rows with these words" });
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    const shown = rows.filter((row) => !row.hidden).length;
    number.textContent = shown < rows.length ? `${shown} of ${rows.length} rows` : `${rows.length} rows`;
  });
  return [input, number];
}

for (const table of document.querySelectorAll("main .wide > table")) {
  if (!table.tHead) continue;
  const save = made("button", { type: "button", class: "csv" }, "CSV");
  save.addEventListener("click", () => {
    const address = URL.createObjectURL(new Blob([`\ufeff${csvOf(table)}\r\n`], { type: "text/csv" }));
    const name = table.closest("section").querySelector("h2").textContent.toLowerCase().replace(/[^a-z0-9]+/g, "_");
    made("a", { href: address, download: `${name.replace(/^_|_$/g, "")}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  });
  const many = table.tBodies[0].rows.length >= FEWEST_TO_FILTER;
  table.parentElement.before(made("div", { class: "tools" }, ...(many ? filterOf(table) : []), save));
  sortable(table);
}
