/** The frames of a conversation: all of them, in chunks of which the browser lays out those that are seen. */

import {to} from './address.js';
import {clock, typeName} from './format.js';
import {html, memo, useEffect, useRef} from './html.js';
import {CHUNK} from './loaded_frames.js';
import {frameWords} from './words.js';

/** @param {{source: import('./source.js').Source, at: number}} about */
export function Frames({source, at}) {
  const {frames} = source;
  const list = useRef(null);
  const current = Math.floor((at - frames.first - 1) / CHUNK);
  useEffect(() => {
    // Only this list is moved: the window, and what is read beside it, stays where it is.
    const row = list.current.children[current]?.children[(at - frames.first - 1) % CHUNK];
    if (row !== undefined) keepInView(list.current, row);
  }, [at]);
  return html`
    <section class="frames" aria-label="Frames">
      <h2>Frames <small>what happened</small></h2>
      <div class="rows" ref=${list}>
        ${frames.chunks.map(
          (chunk, index) => html`<${Chunk} key=${index} chunk=${chunk} start=${frames.first + index * CHUNK}
            at=${index === current ? at : 0} />`,
        )}
      </div>
    </section>
  `;
}

const Chunk = memo(({chunk, start, at}) => {
  const ref = useRef(null);
  useEffect(() => {
    ref.current.style.setProperty('--rows', chunk.length);
  }, [chunk.length]);
  return html`
    <ol class="chunk" ref=${ref} start=${start + 1} aria-label=${`Frames ${start + 1} to ${start + chunk.length}`}>
      ${Array.from(chunk, (frame, index) => html`<${Row} key=${index} frame=${frame} version=${start + index + 1}
        current=${start + index + 1 === at} />`)}
    </ol>
  `;
});

const Row = memo(({frame, version, current}) => {
  if (frame === undefined) return html`<li data-version=${version}><span class="version">${version}</span></li>`;
  const says = frameWords(frame);
  return html`
    <li data-version=${version} class=${frame.outcome} data-type=${frame.type} data-group=${groupOf(frame.type)}>
      <a ...${to({at: version})} tabindex=${current ? 0 : -1} aria-current=${current ? 'step' : null}>
        <span class="version">${version}</span>
        <time datetime=${frame.logged_at}>${clock(frame.logged_at)}</time>
        <span class="type">${typeName(frame.type)}</span>
        <span class="says" title=${says}>${says}</span>
        ${frame.outcome !== 'applied' && html`<span class="outcome">${frame.outcome}${frame.reason && `: ${frame.reason}`}</span>`}
      </a>
    </li>
  `;
});

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
