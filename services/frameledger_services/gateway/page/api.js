/** The gateway's API: JSON in, JSON out, and problems as errors. */

import {parse, parseExactly} from './json.js';

/** Why a request failed (RFC 9457). */
export class Problem extends Error {
  /** @param {{status: number, type: string, title: string, detail: string}} about */
  constructor(about) {
    super(about.detail || about.title);
    this.name = 'Problem';
    Object.assign(this, about);
    /** Whether the same may be done a little later. */
    this.passes = about.status === 0 || about.status === 429 || about.status >= 500;
  }
}

const AGAIN_AFTER = 1_500;

const AWAY = {
  status: 0,
  type: 'away',
  title: 'The gateway does not answer',
  detail: 'It may be stopped, or the network is down. A page that follows retries by itself.',
};

const signedOut = new Set();
let asking = null;

/**
 * Calls `listener` whenever an answer says that there is no session. Returns what ends that.
 * @param {() => void} listener
 */
export function onSignedOut(listener) {
  signedOut.add(listener);
  return () => signedOut.delete(listener);
}

/** Returns the path of a conversation in the API; `rest` begins with a slash. */
export function contextPath(id, rest = '') {
  return `/v1/contexts/${encodeURIComponent(id)}${rest}`;
}

/** Returns the JSON of an answer. Raises `Problem`, and `AbortError` if `signal` was aborted. */
export async function get(path, {signal} = {}) {
  return (await getPage(path, {signal})).value;
}

/** Returns the JSON of an answer for `pretty` and `text`, which write its numbers as the gateway did. */
export async function getExactly(path, {signal} = {}) {
  return parseExactly(await (await ask(path, {signal})).text());
}

/** Returns the JSON of an answer, and the path of the next page; null if there is none. */
export async function getPage(path, {signal} = {}) {
  const answer = await ask(path, {signal});
  const link = /<([^>]*)>;\s*rel="next"/.exec(answer.headers.get('Link') ?? '');
  return {value: parse(await answer.text()), next: link === null ? null : link[1]};
}

/** Returns the JSON of an answer, and asks again until there is one. Raises `Problem` for one that does not pass. */
export async function getAgain(path, {signal}) {
  for (;;) {
    try {
      return await get(path, {signal});
    } catch (problem) {
      if (!problem.passes) throw problem;
      await new Promise((resolve) => setTimeout(resolve, AGAIN_AFTER));
    }
  }
}

/** Sends a value as JSON. Returns the JSON of the answer, null if it has none. Raises `Problem`. */
export function post(path, value) {
  return postJson(path, JSON.stringify(value));
}

/** Sends a text that is JSON, as it is. Returns the JSON of the answer, null if it has none. Raises `Problem`. */
export async function postJson(path, json) {
  return bodyOf(await ask(path, {method: 'POST', body: json, headers: {'Content-Type': 'application/json'}}));
}

/** Returns who asks, as `GET /session` says; asked once. Raises `Problem`. */
export function session() {
  asking ??= get('/session').catch((problem) => {
    asking = null;
    throw problem;
  });
  return asking;
}

/** Begins a session with a token. Returns who asks from now on. Raises `Problem`. */
export async function signIn(token) {
  const found = await post('/session', {token});
  asking = Promise.resolve(found);
  return found;
}

/** Ends the session. */
export async function signOut() {
  asking = null;
  await ask('/session', {method: 'DELETE'});
}

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, {credentials: 'same-origin', ...options});
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem(AWAY);
  }
  if (answer.ok) return answer;
  const problem = await problemOf(answer);
  if (answer.status === 401) {
    asking = null;
    signedOut.forEach((listener) => listener());
  }
  throw problem;
}

async function problemOf(answer) {
  try {
    return new Problem({status: answer.status, ...(await answer.json())});
  } catch {
    return new Problem({status: answer.status, type: 'about:blank', title: answer.statusText, detail: ''});
  }
}

async function bodyOf(answer) {
  const text = await answer.text();
  return text === '' ? null : parse(text);
}
