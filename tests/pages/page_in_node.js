// Runs the script of a page with as little of a document as it needs, and prints what it shows in every state.
"use strict";
const [script, json] = require("fs").readFileSync(0, "utf8").split("\u0000");
class Element {
  constructor() {
    Object.assign(this, { kids: [], style: {}, attributes: {}, heard: {}, tBodies: [] });
  }
  setAttribute(name, value) { this.attributes[name] = value; if (name === "value") this.value = String(value); }
  append(...kids) { this.kids.push(...kids); }
  replaceChildren(...kids) { this.kids = kids; }
  addEventListener(name, act) { this.heard[name] = act; }
  get children() { return this.kids; }
  get textContent() { return this.text ?? this.kids.map((kid) => kid.textContent ?? kid).join(""); }
  set textContent(text) { this.text = text; }
}
const elements = {};
const document = {
  getElementById: (id) => (elements[id] ??= new Element()),
  createElement: () => new Element(),
};
document.getElementById("data").textContent = json;
document.getElementById("features").tBodies = [new Element()];
new Function("document", script)(document);
const found = { states: [], searches: {}, first: elements.level.textContent };
for (const label of elements.components.kids) {
  label.kids[0].heard.change();
  const rows = elements.rows.textContent;
  const shown = [];
  for (let level = 0; level <= Number(elements.lambda.max); level += 1) {
    elements.lambda.value = String(level);
    elements.lambda.heard.input();
    shown.push(elements.features.tBodies[0].kids.map((row) => row.kids.map((cell) => cell.textContent)));
  }
  found.states.push({ title: elements.title.textContent, rows, shown });
}
elements.fixed.kids[2].heard.click();
found.level = elements.level.textContent;
for (const asked of ["", "GENE 1", "nothing like it"]) {
  elements.search.value = asked;
  elements.search.heard.input();
  found.searches[asked] = elements.found.kids.map((line) => line.textContent);
}
elements.search.value = "gene 1";
elements.search.heard.input();
elements.found.kids[0].kids[2].heard.click();
found.after = elements.title.textContent;
process.stdout.write(JSON.stringify(found));
