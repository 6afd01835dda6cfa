// Elements of HTML and SVG. Texts become nodes, never HTML.

export function make(tag, attributes = {}, ...children) {
  const svg = ['svg', 'path', 'g', 'text', 'line', 'rect', 'title'].includes(tag);
  const node = svg
    ? document.createElementNS('http://www.w3.org/2000/svg', tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (name === 'on') for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else if (name === 'style')
      for (const [key, its] of Object.entries(value)) node.style.setProperty(key, its);
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.filter(child => child !== undefined && child !== null));
  return node;
}
