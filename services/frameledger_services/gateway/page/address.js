/**
 * The address as the state of the page: which conversation, which moment, which tab, which filters. So a moment can be
 * sent to somebody, and the back button works.
 *
 * @typedef {{screen: 'list'|'conversation'|'work', context: string|null, at: number|null, from: number|null, to: number|null, tab?: string, q?: string}}
 *   Address  beside these, every parameter of the address by its name, as text
 */

import {useEffect, useState} from './html.js';

const CONVERSATION = '/c/';
const WORK = '/work';
/** Ids that browsers take for folders, in any spelling: no path can end with them, so they are a parameter. */
const FOLDERS = ['.', '..'];
const VERSIONS = ['at', 'from', 'to'];
const PATHS = {
  list: () => '/',
  work: () => WORK,
  conversation: (id) => (isFolder(id) ? '/' : CONVERSATION + encodeURIComponent(id)),
};
/** Browsers refuse more than some changes of the address a second, and a step need not wait for one. */
const SETTLED_AFTER = 250;
const SETTLED_WITHIN = 1_000;

let now = parse(location.pathname, location.search);
let unwritten = null;
const listeners = new Set();

/** Returns whether a browser takes the id of a conversation for a folder, so that the API cannot be asked for it. */
export function isFolder(id) {
  return FOLDERS.includes(id);
}

/** @returns {Address} */
export function read() {
  return now;
}

/**
 * Changes the address. A parameter that is null goes; another conversation, or the list, begins without any.
 * @param {Partial<Address>} patch
 * @param {{replace?: boolean}} how `replace`: without a place in the browser's history, as for a step
 */
export function go(patch, {replace = false} = {}) {
  const next = changed(patch);
  if (write(next) === write(now)) return;
  if (replace) {
    now = next;
    clearTimeout(unwritten?.timer);
    const since = unwritten?.since ?? performance.now();
    const wait = Math.min(SETTLED_AFTER, Math.max(0, since + SETTLED_WITHIN - performance.now()));
    unwritten = {since, timer: setTimeout(settle, wait)};
  } else {
    settle();
    now = next;
    history.pushState(null, '', write(now));
  }
  tell();
}

/** Returns the address that `go` would lead to. */
export function href(patch) {
  return write(changed(patch));
}

/**
 * Returns the properties of a link that changes the address. It is right whenever it is used, also where the link was
 * drawn long before.
 */
export function to(patch) {
  return {href: href(patch), 'data-patch': JSON.stringify(patch)};
}

/** Returns the address, and draws the component that calls it again when that changes. */
export function useAddress() {
  const [, draw] = useState(now);
  useEffect(() => {
    const listener = () => draw(now);
    listeners.add(listener);
    listener();
    return () => listeners.delete(listener);
  }, []);
  return now;
}

/** Makes links to the page's own addresses change it instead of loading it anew. */
export function followLinks(root) {
  root.addEventListener('pointerdown', (event) => renew(linkOf(event)), true);
  root.addEventListener('focusin', (event) => renew(linkOf(event)));
  root.addEventListener('click', (event) => {
    const anchor = linkOf(event);
    if (anchor === null || event.defaultPrevented || !isPlain(event)) return;
    renew(anchor);
    if (anchor.origin !== location.origin || !isOurs(anchor.pathname)) return;
    event.preventDefault();
    jump(parse(anchor.pathname, anchor.search));
  });
  addEventListener('popstate', () => {
    clearTimeout(unwritten?.timer);
    unwritten = null;
    now = parse(location.pathname, location.search);
    tell();
  });
}

function linkOf({target}) {
  const anchor = target instanceof Element ? target.closest('a[href]') : null;
  return anchor !== null && anchor.target === '' && !anchor.hasAttribute('download') ? anchor : null;
}

function renew(anchor) {
  if (anchor?.dataset.patch !== undefined) anchor.href = href(JSON.parse(anchor.dataset.patch));
}

function isPlain(event) {
  return event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
}

function jump(next) {
  const gone = Object.fromEntries(Object.keys(now).map((name) => [name, null]));
  go({...gone, ...next});
}

function changed(patch) {
  const leaves = ['context', 'screen'].some((name) => name in patch && patch[name] !== now[name]);
  const next = leaves ? {} : {...now};
  for (const [name, value] of Object.entries(patch)) {
    if (value === null || value === undefined || value === '') delete next[name];
    else next[name] = value;
  }
  const screen = next.context !== undefined && next.context !== null ? 'conversation' : patch.screen ?? 'list';
  return {context: null, at: null, from: null, to: null, ...next, screen};
}

function settle() {
  clearTimeout(unwritten?.timer);
  if (unwritten !== null) history.replaceState(null, '', write(now));
  unwritten = null;
}

function tell() {
  listeners.forEach((listener) => listener());
}

function isOurs(path) {
  return path === '/' || path === WORK || path.startsWith(CONVERSATION);
}

function parse(path, search) {
  const found = {context: null, at: null, from: null, to: null};
  for (const [name, value] of new URLSearchParams(search)) {
    if (!VERSIONS.includes(name)) found[name] = value;
    else if (/^\d{1,15}$/.test(value)) found[name] = Number(value);
  }
  if (path !== '/' || !isFolder(found.context)) {
    found.context = path.startsWith(CONVERSATION) ? decoded(path.slice(CONVERSATION.length)) : null;
  }
  found.screen = found.context !== null ? 'conversation' : path === WORK ? 'work' : 'list';
  return found;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function write(address) {
  const {context, screen, ...parameters} = address;
  // A thousand links are written at once; `URLSearchParams` would take as long as their elements.
  const named = isFolder(context) ? {context, ...parameters} : parameters;
  const given = Object.entries(named).filter(([, value]) => value !== null);
  const query = given.map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`).join('&');
  return PATHS[screen](context) + (query === '' ? '' : `?${query}`);
}
