// Elements of HTML and SVG. Texts become nodes, never HTML.

import {cutName} from './text.js';

const isPlain = part => Object.getPrototypeOf(part ?? '') === Object.prototype;

// An element with its attributes, which may be left out, and its children; null and undefined are skipped.
export function make(tag, ...parts) {
  const svg = ['svg', 'path', 'g', 'text', 'rect', 'title'].includes(tag);
  const node = svg
    ? document.createElementNS('http://www.w3.org/2000/svg', tag)
    : document.createElement(tag);
  const attributes = isPlain(parts[0]) ? parts.shift() : {};
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (name === 'on') for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else if (name === 'style')
      for (const [key, its] of Object.entries(value)) node.style.setProperty(key, its);
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...parts.filter(part => part !== undefined && part !== null));
  return node;
}

export const xy = (x, y) => `${x.toFixed(1)} ${y.toFixed(1)}`;
export const pathOf = points => 'M' + points.map(([x, y]) => xy(x, y)).join('L');

// A path with a title, which browsers show as a tooltip.
export const path = (style, d, more = {}, title = null) =>
  make('path', {class: style, d, ...more}, title === null ? null : make('title', title));

export const note = text => make('p', {class: 'note'}, text);

// A section with a title; null without content.
export function section(id, title, ...content) {
  if (!content.length) return null;
  return make('section', {class: id, 'aria-labelledby': id}, make('h2', {id}, title), ...content);
}

export const cell = (...parts) => make('td', ...parts);
export const row = (title, ...cells) => make('tr', make('th', {scope: 'row'}, title), ...cells);

// A table in a box that scrolls. Its titles are texts or header cells.
export function table(label, titles, rows, style = '') {
  const heads = titles.map(title => (typeof title === 'string' ? make('th', {scope: 'col'}, title) : title));
  return make(
    'div',
    {class: 'wide', tabindex: 0, role: 'region', 'aria-label': label},
    make('table', {class: style}, make('thead', make('tr', ...heads)), make('tbody', ...rows))
  );
}

// A bar for each [name, size, ...texts], in proportion to the largest.
export function bars(rows) {
  const largest = Math.max(1e-9, ...rows.map(([, size]) => size));
  const bar = size => make('i', {style: {width: `${((100 * size) / largest).toFixed(1)}%`}});
  const rowOf = ([name, size, ...texts]) =>
    row(make('span', {title: name}, cutName(name, 28)), cell(bar(size)), ...texts.map(text => cell(text)));
  return make('table', {class: 'bars'}, make('tbody', ...rows.map(rowOf)));
}
