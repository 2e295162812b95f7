/** The frames of a conversation: all of them, in chunks of which the browser lays out those that are seen. */

import {to} from './address.js';
import {session} from './api.js';
import {clock, typeName} from './format.js';
import {html, memo, useEffect, useLayoutEffect, useRef, useState} from './html.js';
import {CHUNK} from './loaded_frames.js';
import {frameWords, text} from './words.js';

/** @param {{source: import('./source.js').Source, at: number}} about */
export function Frames({source, at}) {
  const {frames} = source;
  const list = useRef(null);
  const current = Math.floor((at - frames.first - 1) / CHUNK);
  const follow = () => {
    // It has another size when it is taken away, too.
    if (list.current === null) return;
    // Only this list is moved: the window, and what is read beside it, stays where it is.
    const row = list.current.children[current]?.children[(at - frames.first - 1) % CHUNK];
    if (row !== undefined) keepInView(list.current, row);
  };
  const now = useRef(follow);
  now.current = follow;
  useEffect(follow, [at]);
  // What is above and below takes its room from the list: lanes that come, a frame that is opened.
  useLayoutEffect(() => {
    const sized = new ResizeObserver(() => now.current());
    sized.observe(list.current);
    return () => sized.disconnect();
  }, []);
  return html`
    <section class="frames" aria-label="Frames">
      <h2>Frames <small>what happened</small></h2>
      <div class="rows" ref=${list}>
        ${frames.chunks.map(
          (chunk, index) => html`<${Chunk} key=${index} chunk=${chunk} start=${frames.first + index * CHUNK}
            at=${index === current ? at : 0} />`,
        )}
      </div>
      <${Record} frame=${frames.at(at)} />
    </section>
  `;
}

/** The frame that is looked at, as it was published. */
function Record({frame}) {
  const [open, setOpen] = useState(false);
  const [traces, setTraces] = useState(null);
  useEffect(() => void session().then((who) => setTraces(who.trace_url ?? null), () => setTraces(null)), []);
  if (frame === undefined) return null;
  return html`
    <details class="record" open=${open} onToggle=${(event) => setOpen(event.target.open)}>
      <summary>Frame ${frame.version} <span class="type">${typeName(frame.type)}</span></summary>
      ${open && traces && frame.trace_id && html`<p><a href=${traces.replace('{trace_id}', frame.trace_id)} target="_blank" rel="noreferrer">Open its trace</a></p>`}
      ${open && html`<pre tabindex="0" aria-label=${`Frame ${frame.version} as JSON`}>${text(frame.frame, 2)}</pre>`}
    </details>
  `;
}

const Chunk = memo(({chunk, start, at}) => {
  const ref = useRef(null);
  useLayoutEffect(() => {
    ref.current.style.setProperty('--rows', chunk.length);
  }, [chunk.length]);
  const end = start + chunk.length;
  return html`
    <ol class="chunk" ref=${ref} start=${start + 1} aria-label=${`Frames ${start + 1} to ${end}`}>
      ${isEmpty(chunk) && at === 0 ? null : Array.from(chunk, (frame, index) => row(frame, start + index + 1, at))}
    </ol>
  `;
});

function isEmpty(chunk) {
  return chunk.every((frame) => frame === undefined);
}

/** Rows as they were drawn: where one is the same object, Preact leaves its elements alone. */
const drawn = new WeakMap();

// No component: ten thousand of them would take longer to make than their rows.
function row(frame, version, at) {
  if (!frame || version === at) return rowOf(frame, version, version === at);
  if (!drawn.has(frame)) drawn.set(frame, rowOf(frame, version, false));
  return drawn.get(frame);
}

function rowOf(frame, version, current) {
  if (!frame) {
    return html`<li key=${version} data-version=${version}><span class="version">${version}</span>${frame === null && html` <span
      class="outcome">not stored any more</span>`}</li>`;
  }
  return html`
    <li key=${version} data-version=${version} class=${frame.outcome} data-type=${frame.type} data-group=${groupOf(frame.type)}>
      <a ...${to({at: version})} tabindex=${current ? 0 : -1} aria-current=${current ? 'step' : null}>
        <span class="version">${version}</span>
        <time>${clock(frame.logged_at)}</time>
        <span class="type">${typeName(frame.type)}</span>
        <span class="says">${frameWords(frame)}</span>
        ${frame.outcome === 'applied' ? null : html`<span class="outcome">${frame.outcome}${frame.reason && `: ${frame.reason}`}</span>`}
      </a>
    </li>
  `;
}

const GROUPS = [
  [/^(User|Transcription|Interim|Translation)/, 'user'],
  [/^(Interruption|Error)/, 'alarm'],
  [/^Function/, 'call'],
  [/^(LLMFull|LLMText|LLMThought|LLMAssistant|LLMContextAssistant|Vision|Text|Bot)/, 'answer'],
];

function groupOf(type) {
  return GROUPS.find(([pattern]) => pattern.test(type))?.[1] ?? 'context';
}

function keepInView(list, row) {
  const {top, bottom} = row.getBoundingClientRect();
  const outer = list.getBoundingClientRect();
  if (top >= outer.top && bottom <= outer.bottom) return;
  list.scrollTop += top - outer.top - outer.height / 2;
}
