const data = JSON.parse(document.getElementById("data").textContent);
const { levels, shown, components, names, counts, where } = data;
const at = (id) => document.getElementById(id);
const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;
const number = (value) => value.toLocaleString("en");
const byNumber = new Map(components.map((each) => [each.number, each]));
const small = names.map((name) => name.toLowerCase());
let chosen = components[0];
const middle = Math.round(0.6 * levels); // about the best for readers in a study (Sievert and Shirley 2014)
let level = middle;

function sized(tag, name, share, colour, ...children) {
  const element = made(tag, { class: name }, ...children);
  element.style.width = `${100 * share}%`;
  if (colour) element.style.background = colour;
  return element;
}

// Whole numbers, as bayesnmf.pages.browse has them; features are in the order of their weight, which breaks ties.
function leading(component, l) {
  const score = component.weight.map((weight, i) => l * weight + (levels - l) * component.lift[i]);
  return [...score.keys()].sort((i, j) => score[j] - score[i] || i - j).slice(0, shown);
}

function words(component, most) {
  return leading(component, middle).slice(0, most).map((i) => names[component.features[i]]).join(", ");
}

function showFeatures() {
  const order = leading(chosen, level);
  const most = Math.max(...order.map((i) => counts[chosen.features[i]]), 1);
  at("features").tBodies[0].replaceChildren(...order.map((i) => {
    const feature = chosen.features[i];
    const lift = Math.exp(chosen.lift[i] / 1e4);
    const part = Math.min(chosen.size * lift, 1);
    const bar = sized("span", "bar", counts[feature] / most, "", sized("span", "", part, chosen.colour));
    bar.title = `${percent(part)} of ${number(counts[feature])}`;
    return made("tr", {},
      made("th", { scope: "row" }, names[feature]),
      made("td", { class: "bars" }, bar),
      made("td", { class: "number" }, percent(part, 0)),
      made("td", { class: "number" }, percent(Math.exp(chosen.weight[i] / 1e4), 2)),
      made("td", { class: "number" }, lift.toFixed(lift < 10 ? 1 : 0)));
  }));
  at("lambda").value = level;
  const text = (level / levels).toFixed(2);
  at("level").textContent = text;
  at("lambda").setAttribute("aria-valuetext", text);
  for (const button of at("fixed").children) button.setAttribute("aria-pressed", button.value === String(level));
}

function limits([share, low, high]) {
  return percent(share) + (low === null ? "" : ` [${percent(low)}, ${percent(high)}]`);
}

function showRows() {
  at("rows").replaceChildren(...chosen.rows.map((row) => {
    const others = row.others.map(([k, share]) => `${byNumber.get(Number(k)).title} ${limits(share)}`);
    return made("li", {},
      made("strong", {}, row.name), ` ${limits(row.share)}; ${number(row.counts)} counts`,
      ...(others.length ? [made("div", { class: "quiet" }, `also ${others.join("; ")}`)] : []),
      ...row.parts.map((pieces) => made("blockquote", {}, "… ",
        ...pieces.map((piece, i) => (i % 2 ? made("mark", {}, piece) : piece)), " …")));
  }));
}

function choose(component) {
  chosen = component;
  at("title").textContent = chosen.title;
  at("size").textContent = `${percent(chosen.size)} of all expected counts`;
  at(`component-${chosen.number}`).checked = true;
  showFeatures();
  showRows();
}

function setLevel(l) {
  level = l;
  showFeatures();
}

function search() {
  const asked = at("search").value.trim().toLowerCase();
  const rank = (name) => (name === asked ? 0 : name.startsWith(asked) ? 1 : 2);
  const found = asked ? [...small.keys()].filter((i) => small[i].includes(asked)) : [];
  found.sort((i, j) => rank(small[i]) - rank(small[j]) || counts[j] - counts[i]);
  const lines = found.slice(0, 8).map((i) => {
    const buttons = [];
    for (let place = 0; place < where[i].length; place += 2) {
      const component = byNumber.get(where[i][place]);
      const button = made("button", { type: "button" }, `${component.title}: ${where[i][place + 1]} %`);
      button.addEventListener("click", () => choose(component));
      buttons.push(button);
    }
    return made("li", {}, made("strong", {}, names[i]), ` ${number(counts[i])} counts: `, ...buttons);
  });
  if (asked && !found.length) lines.push(made("li", {}, "no such feature"));
  if (found.length > 8) lines.push(made("li", {}, `and ${number(found.length - 8)} more`));
  at("found").replaceChildren(...lines);
}

at("components").replaceChildren(...components.map((each) => {
  const input = made("input", { type: "radio", name: "component", id: `component-${each.number}` });
  input.addEventListener("change", () => choose(each));
  const swatch = made("span", { class: "swatch" });
  swatch.style.background = each.colour;
  return made("label", {}, input, swatch, made("span", {}, each.title), made("span", {}, percent(each.size)),
    sized("span", "size", each.size / Math.max(components[0].size, 1e-9), each.colour),
    made("small", {}, words(each, 5)));
}));
at("fixed").append(...[1, 0.6, 0.3, 0].map((value) => {
  const l = Math.round(value * levels);
  const button = made("button", { type: "button", value: l }, String(value));
  button.addEventListener("click", () => setLevel(l));
  return button;
}));
at("lambda").max = levels;
at("lambda").addEventListener("input", () => setLevel(Number(at("lambda").value)));
at("search").addEventListener("input", search);
at("printed").hidden = true;
at("browser").hidden = false;
choose(chosen);
