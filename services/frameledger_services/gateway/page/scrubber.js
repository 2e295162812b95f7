/** The version that is looked at: a slider over all of them, and steps. */

import {clock, number, typeName} from './format.js';
import {html} from './html.js';

/** @param {{source: import('./source.js').Source, at: number, step: (version: number) => void}} about */
export function Scrubber({source, at, step}) {
  const {first} = source.frames;
  const {newest} = source;
  const frame = source.frames.at(at);
  const said = frame === undefined ? `version ${at}` : `version ${at}, ${typeName(frame.type)}, ${clock(frame.logged_at)}`;
  return html`
    <div class="scrubber">
      <div class="steps">
        <button type="button" aria-label="First version" disabled=${at <= first} onClick=${() => step(first)}>⏮</button>
        <button type="button" aria-label="One version back" disabled=${at <= first} onClick=${() => step(at - 1)}>◂</button>
        <button type="button" aria-label="One version on" disabled=${at >= newest} onClick=${() => step(at + 1)}>▸</button>
        <button type="button" aria-label="Newest version" disabled=${at >= newest} onClick=${() => step(newest)}>⏭</button>
      </div>
      <input type="range" aria-label="Version" min=${first} max=${newest} step="1" value=${at}
        aria-valuetext=${said} onInput=${(event) => step(Number(event.target.value))} />
      <p class="where"><b>${number(at)}</b> of ${number(newest)}${frame && html` · <time>${clock(frame.logged_at)}</time>`}</p>
    </div>
  `;
}
