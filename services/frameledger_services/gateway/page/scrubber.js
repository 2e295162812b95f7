/** The version that is looked at: a slider over all of them, steps, and leaps between marks. */

import {clock, number, typeName} from './format.js';
import {html, memo} from './html.js';
import {leap} from './spans.js';

/**
 * @param {{source: import('./source.js').Source, marks: import('./spans.js').Mark[], at: number, asked: number,
 *   step: (version: number) => void, children: any}} about `asked`: the version of the address; `at` is the nearest one
 *   that is there
 */
export function Scrubber({source, marks, at, asked, step, children}) {
  const {first} = source.frames;
  const {newest} = source;
  const frame = source.frames.at(at);
  const said = [`version ${at}`, frame && typeName(frame.type), frame && clock(frame.logged_at)].filter(Boolean).join(', ');
  const before = leap(marks, at, false);
  const behind = leap(marks, at, true);
  return html`
    <div class="scrubber">
      <div class="slider">
        <input type="range" aria-label="Version" min=${first} max=${newest} step="1" value=${at} aria-valuetext=${said}
          onInput=${(event) => step(Number(event.target.value))} />
        <${Marks} marks=${marks} first=${first} newest=${newest} />
      </div>
      <div class="steps">
        <${Step} name="Mark before" keys="[" icon="leap back" to=${before} step=${step} />
        <${Step} name="One version back" keys="," icon="step back" to=${at > first ? at - 1 : null} step=${step} />
        ${children}
        <${Step} name="One version on" keys="." icon="step on" to=${at < newest ? at + 1 : null} step=${step} />
        <${Step} name="Next mark" keys="]" icon="leap on" to=${behind} step=${step} />
        <p class="where">
          version <b>${number(at)}</b> of ${number(newest)}
          ${asked < at && html` · <strong>Version ${number(asked)} was erased.</strong>`}
          ${asked > at && html` · <strong>There is no version ${number(asked)}.</strong>`}
          ${frame && html` · <time datetime=${frame.logged_at}>${clock(frame.logged_at)}</time> · <span class="type">${typeName(frame.type)}</span>`}
        </p>
      </div>
    </div>
  `;
}

function Step({name, keys, icon, to, step}) {
  return html`<button type="button" aria-label=${name} title=${`${name} (${keys})`} disabled=${to === null}
    onClick=${() => step(to)}><span class=${`icon ${icon}`}></span></button>`;
}

/** Where the marks are, by version: the slider is about versions, and the lanes above are about time. */
const Marks = memo(({marks, first, newest}) => html`
  <svg class="marks" aria-hidden="true" width="100%" height="6">
    ${marks.map((one) => html`<rect key=${`${one.version}${one.kind}`} class=${one.kind} width="1.5" height="6"
      x=${`${newest === first ? 0 : (100 * (one.version - first)) / (newest - first)}%`} />`)}
  </svg>
`);
