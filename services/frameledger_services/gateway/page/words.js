/** What a frame and a message say, in text: what was redacted is said to be. */

import {number} from './format.js';

/** Returns whether a value stands for one that this token may not see. */
export function isRedacted(value) {
  return value !== null && typeof value === 'object' && value.redacted === true && typeof value.bytes === 'number';
}

/** Returns whether the client that brought the function of a call answers it: such a call starts as it is dispatched. */
export function isOfClient(call) {
  return call.started_version !== null && call.started_version === call.dispatched_version;
}

/** Returns any value as text: text as it is, everything else as JSON, which stays short where it holds media. */
export function text(value, space) {
  if (isRedacted(value)) return redaction(value);
  if (typeof value === 'string') return value;
  return value === undefined ? '' : JSON.stringify(value, withoutMedia, space);
}

/** Returns what stands in the place of a redacted text. */
export function redaction({bytes}) {
  return `[redacted, ${number(bytes)} bytes]`;
}

/** Returns one line that says what a frame says; empty where its type says it all. */
export function frameWords({frame}) {
  if (frame === null || typeof frame !== 'object' || isRedacted(frame)) return text(frame);
  return (ofHistory(frame) ?? words(frame)).replace(/\s+/g, ' ').slice(0, 400);
}

/** Frames that say of the history what no field of theirs says alone. */
function ofHistory({type, position, message, mirror}) {
  if (type === 'LLMMirrorFrame') return mirror === null || mirror === undefined ? 'kept here again' : `kept elsewhere, by ${text(mirror)}`;
  if (type !== 'LLMMessageRewriteFrame') return null;
  const place = `message ${text(position)}`;
  if (message === null || message === undefined) return `${place} is gone`;
  return `${place} is now ${isRedacted(message) ? text(message) : lastOf([message])}`;
}

function words(fields) {
  const {text: said, messages, context, function_calls: calls, function_name: name} = fields;
  if (said !== undefined) return text(said);
  const history = messages ?? context?.messages;
  if (Array.isArray(history)) return lastOf(history);
  if (Array.isArray(calls)) return calls.map((call) => text(call?.function_name)).join(', ');
  if (name !== undefined) return ofCall(text(name), fields);
  if (Array.isArray(fields.tools)) return `${fields.tools.length} tools`;
  for (const field of ['settings', 'tool_choice', 'message', 'error']) {
    if (fields[field] !== undefined && fields[field] !== null) return text(fields[field]);
  }
  if (fields.heard_text !== undefined && fields.heard_text !== null) return `heard: ${text(fields.heard_text)}`;
  return text(fields.finish_reason ?? fields.model ?? fields.why ?? '');
}

function ofCall(name, {result, waiting, arguments: given, settled_as: as}) {
  if (result !== undefined) return `${name}${as && as !== 'done' ? ` (${as})` : ''}: ${text(result)}`;
  if (waiting) return `${name} waits for ${text(waiting.for)}`;
  return given === undefined ? name : `${name} ${text(given)}`;
}

function lastOf(history) {
  if (history.length === 0) return 'no messages';
  const last = history.at(-1);
  const more = history.length > 1 ? ` (and ${history.length - 1} before it)` : '';
  return `${speakerOf(last).name}: ${parts(last).map((part) => part.text).join(' ')}${more}`;
}

const THOUGHTS = ['thought', 'thinking', 'reasoning'];

/**
 * Returns who speaks in a message, as people are told. Of one that a single provider reads: what it is, and `by` whom.
 * @returns {{name: string, by: string}}
 */
export function speakerOf(message) {
  if (message?.role !== undefined || message?.llm === undefined) return {name: roleOf(message), by: ''};
  const isThought = THOUGHTS.includes(message.message?.type);
  return {name: isThought ? 'thought' : "provider's own", by: text(message.llm)};
}

/** Returns the role of a message; for one that a single provider reads, that provider's name. */
export function roleOf(message) {
  return text(message?.role ?? message?.llm ?? 'message');
}

/**
 * Returns the parts of a message's content: texts, images, and what is nothing of the kind as JSON.
 * @returns {{kind: 'text'|'image'|'other', text: string, source?: string}[]}
 */
export function parts(message) {
  if (message === null || typeof message !== 'object' || isRedacted(message)) return [{kind: 'text', text: text(message)}];
  if (message.llm !== undefined && message.message !== undefined) return [ofProvider(message.message)];
  const {content} = message;
  if (content === undefined || content === null) return [];
  return Array.isArray(content) ? content.map(part) : [{kind: 'text', text: text(content)}];
}

function ofProvider(own) {
  const said = own?.text ?? own?.thinking;
  return said === undefined ? {kind: 'other', text: text(own)} : {kind: 'text', text: text(said)};
}

function part(one) {
  if (one?.type === 'text') return {kind: 'text', text: text(one.text)};
  const url = one?.image_url?.url ?? one?.image_url;
  if (typeof url === 'string') return {kind: 'image', text: `[image: ${shortened(url)}]`, source: url};
  return {kind: 'other', text: text(one)};
}

/** What says that the `data` beside it is base64: OpenAI's sound, Anthropic's and Google's media, MCP's. */
const TYPES_OF_DATA = ['format', 'media_type', 'mime_type', 'mimeType'];

/** As a replacer of `JSON.stringify`, which calls it with the object that has the value as `this`. */
function withoutMedia(name, value) {
  if (typeof value !== 'string') return value;
  if (value.startsWith('data:')) return shortened(value);
  const isMedia = name === 'data' && (this.type === 'base64' || TYPES_OF_DATA.some((one) => typeof this[one] === 'string'));
  return isMedia ? `base64, ${number(value.length)} bytes` : value;
}

function shortened(url) {
  return url.startsWith('data:') ? `${url.slice(0, url.indexOf(','))}, ${number(url.length)} bytes` : url;
}
