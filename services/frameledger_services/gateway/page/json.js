/** JSON as people read it: what is short stands on one line. */

/** Characters that stand on one line. */
const SHORT = 96;

/** Returns a JSON value as text. */
export function pretty(value, indent = '') {
  const line = short(value);
  if (line.length <= SHORT - indent.length || isSingle(value)) return line;
  const inner = `${indent}  `;
  const [open, close] = Array.isArray(value) ? '[]' : '{}';
  const items = Array.isArray(value)
    ? value.map((one) => pretty(one, inner))
    : Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${pretty(one, inner)}`);
  return `${open}\n${items.map((item) => inner + item).join(',\n')}\n${indent}${close}`;
}

/** Whether lines of its own would make it no easier to read: a scalar, or an object of one. */
function isSingle(value) {
  if (value === null || typeof value !== 'object') return true;
  const inner = Object.values(value);
  return inner.length < 2 && (inner[0] === null || typeof inner[0] !== 'object');
}

function short(value) {
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(short).join(', ')}]`;
  return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${short(one)}`).join(', ')}}`;
}
