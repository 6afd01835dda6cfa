// The parts of a browser's document that the charts need, so that a test can read what they draw.

class Node {
  constructor(tag) {
    this.tag = tag;
    this.attributes = {};
    this.children = [];
    this.style = {setProperty: (name, value) => (this.attributes['style ' + name] = value)};
  }
  setAttribute(name, value) {
    this.attributes[name] = String(value);
  }
  append(...children) {
    this.children.push(...children);
  }
  get text() {
    return this.children.map(child => child.text ?? child).join('');
  }
  // This node and all nodes in it for which the test holds.
  all(test) {
    const below = this.children.flatMap(child => (child instanceof Node ? child.all(test) : []));
    return test(this) ? [this, ...below] : below;
  }
}
globalThis.document = {createElement: tag => new Node(tag), createElementNS: (_, tag) => new Node(tag)};
