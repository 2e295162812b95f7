/** JSON as people read it: what is short stands on one line. */

/** Characters that stand on one line. */
const SHORT = 96;

/**
 * Returns the value of a JSON text for those who write it again: each number that JavaScript would write otherwise,
 * since it is too long or ends in a zero, is an object that `JSON.stringify` writes as it was. Nobody can count with
 * it. A browser that has no such objects rounds long numbers.
 */
export function parseExactly(json) {
  if (JSON.rawJSON === undefined) return JSON.parse(json);
  return JSON.parse(json, (_, value, {source}) => (
    typeof value === 'number' && String(value) !== source ? JSON.rawJSON(source) : value
  ));
}

/** Returns whether a value has a whole number that is too long for JavaScript, so that it may have been another one. */
export function isRounded(value) {
  if (typeof value === 'number') return Math.abs(value) > Number.MAX_SAFE_INTEGER;
  return value !== null && typeof value === 'object' && Object.values(value).some(isRounded);
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
