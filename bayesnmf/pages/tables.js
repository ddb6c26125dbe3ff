// Tables that can be sorted by each column, filtered by words and downloaded, by buttons that only a script makes.
const FEWEST_TO_FILTER = 12;

// The number that a text begins with, in per cent or not, after "<"; NaN if it is none.
function numberOf(text) {
  return parseFloat(text.replace(/[,\s<−]/g, (sign) => (sign === "−" ? "-" : "")));
}

function compare(a, b, column) {
  const [one, other] = [a, b].map((row) => row.cells[column].textContent.trim());
  const [x, y] = [a, b].map((row, i) => parseFloat(numbersOf(row.cells[column])[0] ?? numberOf([one, other][i])));
  if (!Number.isNaN(x) && !Number.isNaN(y) && x !== y) return x - y;
  return one.localeCompare(other, undefined, { numeric: true });
}

// The numbers that an entry shows, as they were before they were rounded: one, or one and both ends of its interval.
function numbersOf(cell) {
  return (cell.dataset.numbers ?? "").split(" ").filter(Boolean);
}

// Text that a spreadsheet would run as a formula begins with an apostrophe.
function fieldOf(text) {
  const safe = /^[=+\-@\t\r]/.test(text) && !/^[+-]?[\d.]+$/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

// The rows that are shown. A column in which some entry is a number has numbers alone, and is empty where there is none.
function csvOf(table) {
  const rows = [...table.tBodies[0].rows];
  const headings = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
  const widths = headings.map((_, i) => Math.max(0, ...rows.map((row) => numbersOf(row.cells[i]).length)));
  const lines = [headings.flatMap((name, i) => (widths[i] === 3 ? [name, `${name} low`, `${name} high`] : [name]))];
  for (const row of rows.filter((each) => !each.hidden)) {
    lines.push(headings.flatMap((_, i) => {
      const numbers = numbersOf(row.cells[i]).map((each) => (each === "nan" ? "" : each));
      return widths[i] ? Array.from({ length: widths[i] }, (_, at) => numbers[at] ?? "") : [row.cells[i].textContent.trim()];
    }));
  }
  return lines.map((fields) => fields.map(fieldOf).join(",")).join("\r\n");
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
