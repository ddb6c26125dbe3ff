"use strict";
// What all pages share. All that is shown is made of text nodes, so that no name and no text can become markup.
function made(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
