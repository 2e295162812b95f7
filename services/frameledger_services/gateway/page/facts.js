/** The small pieces that panels are made of: versions, frames, times, values, and commands to copy. */

import {html, useState} from './html.js';
import {href, read} from './address.js';
import {clock, typeName, whole} from './format.js';
import {pretty} from './json.js';
import {isRedacted, text} from './words.js';

/** What only the panels read of the address. */
const OF_PANELS = {tab: null, run: null, call: null, message: null, from: null, to: null, only: null, json: null};

/**
 * A version: it leads to the context then, which stands beside the panel that says why.
 * @param {{at: number|null, of?: string, children?: any}} about `of`: the conversation, if it is not the one that is shown
 */
export function Version({at, of, children}) {
  if (at === null || at === undefined) return null;
  const {tab, context} = read();
  const there = {...(tab === 'why' ? {} : OF_PANELS), context: of ?? context, at};
  return html`<a class="version" href=${href(there)} title=${`Show the context at version ${at}`}>${children ?? at}</a>`;
}

/** From one version to another, each of which leads there. */
export function Versions({from, to}) {
  if (from === to) return html`<${Version} at=${from} />`;
  return html`<${Version} at=${from} />–<${Version} at=${to} />`;
}

/** A frame as answers name it: its version, its type, when, and by whom. */
export function Frame({frame}) {
  if (!frame) return null;
  return html`<span class="frame"><${Version} at=${frame.version} /> <span class="type">${typeName(frame.type)}</span>${
    frame.logged_at && html` <${Clock} time=${frame.logged_at} />`}${
    frame.source && html` <span class="faint">by <bdi>${text(frame.source)}</bdi></span>`}</span>`;
}

/** A time of day; date and zone are shown to who points at it. */
export function Clock({time}) {
  return time ? html`<time datetime=${time} title=${whole(time)}>${clock(time)}</time>` : null;
}

/** Returns the seconds between two times; null without both. */
export function seconds(from, to) {
  return from && to ? (new Date(to) - new Date(from)) / 1000 : null;
}

/** Returns seconds in words: "0.31 s", "12 s", "3 min", "5 h", "2 days". */
export function took(secs) {
  if (secs === null) return '';
  if (secs < 0.995) return `${Math.max(0, secs).toFixed(2)} s`;
  if (secs < 9.95) return `${secs.toFixed(1)} s`;
  if (secs < 90) return `${Math.round(secs)} s`;
  if (secs < 90 * 60) return `${Math.round(secs / 60)} min`;
  if (secs < 36 * 3600) return `${Math.round(secs / 3600)} h`;
  return `${Math.round(secs / 86400)} days`;
}

/** A value in a block: text as it is, all else as indented JSON. */
export function Value({value}) {
  return html`<pre class=${isRedacted(value) ? 'value withheld' : 'value'}>${shown(value)}</pre>`;
}

/** Returns a value as text: text as it is, all else as JSON. */
export function shown(value) {
  return isRedacted(value) || typeof value === 'string' ? text(value) : pretty(value);
}

/** Names and what they are, side by side; what is null or empty is left out. */
export function Facts({rows}) {
  const known = rows.filter(([, value]) => value !== null && value !== undefined && value !== '' && value !== false);
  return html`<dl class="facts">${known.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** How something stands, in a word, with a sign of its own beside its colour. */
export function Badge({tone, sign, children}) {
  return html`<span class=${`badge ${tone}`}><span aria-hidden="true">${sign}</span> ${children}</span>`;
}

/** A text to take along, such as a command, with a button that copies it. */
export function Copied({label, children}) {
  return html`<div class="copied"><code>${children}</code><${Copy} label=${label} of=${children} /></div>`;
}

/** A button that copies a text. */
export function Copy({label, of}) {
  const [said, say] = useState('');
  // There is no clipboard without https, but on this machine.
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(of);
      say('Copied');
    } catch {
      say('Copying is not allowed: select it');
    }
  };
  return html`<span class="copies"><button type="button" onClick=${copy} aria-label=${`Copy ${label}`}>Copy</button>${' '}<span
    role="status" class="faint">${said}</span></span>`;
}

/** Returns an argument as a shell reads it back. */
export function quoted(argument) {
  return /^[\w@%+=:,./-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", `'"'"'`)}'`;
}
