/** JSON as people read it: what is short stands on one line. */

/** Characters that stand on one line. */
const SHORT = 96;

/**
 * What a text has in it if it may have a whole number that is too long for JavaScript: digits where a value begins, and
 * not in the middle of a hash. Each message that still stands has one, the end of its validity; it is compared with
 * versions, and rounded it is as far away.
 */
const LONG = /\d(?<=[:[,]\s*-?\d)(?<!"valid_to":\d)\d{15}/;

/**
 * Returns the value of a JSON text. A whole number that is too long for JavaScript is an object that `JSON.stringify`
 * writes as it was; nobody can count with it. A browser that has no such objects rounds it.
 */
export function parse(json) {
  if (!LONG.test(json)) return JSON.parse(json);
  return parseKeeping(json, (name, value) => (
    Number.isInteger(value) && !Number.isSafeInteger(value) && name !== 'valid_to'
  ));
}

/**
 * Returns the value of a JSON text for those who write it again: each number that JavaScript would write otherwise is
 * such an object, also one that ends in a zero.
 */
export function parseExactly(json) {
  return parseKeeping(json, (_, value, source) => typeof value === 'number' && String(value) !== source);
}

function parseKeeping(json, isKept) {
  if (JSON.rawJSON === undefined) return JSON.parse(json);
  return JSON.parse(json, (name, value, {source}) => (isKept(name, value, source) ? JSON.rawJSON(source) : value));
}

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
  if (isScalar(value)) return true;
  const inner = Object.values(value);
  return inner.length < 2 && (inner.length === 0 || isScalar(inner[0]));
}

function short(value) {
  if (isScalar(value)) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(short).join(', ')}]`;
  return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${short(one)}`).join(', ')}}`;
}

function isScalar(value) {
  return value === null || typeof value !== 'object' || JSON.isRawJSON?.(value) === true;
}
