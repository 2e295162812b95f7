/** Whether the stored frames are the ones that were stored: in words, with what that proves and what not. */

import {html, useState} from './html.js';
import {contextPath} from './api.js';
import {Missing, useAnswer} from './answer.js';
import {Copied, Version, quoted} from './facts.js';
import {count} from './format.js';

/** The tab. It reads every frame, so it is done when somebody asks for it, not whenever a frame comes. */
export function Verify({id, newest}) {
  const [times, setTimes] = useState(0);
  const {data, problem} = useAnswer(contextPath(id, '/verify'), times);
  if (data === null) return html`<${Missing} problem=${problem} what="every frame" />`;
  return html`<section class="sheet verify" aria-label="Verify">
    <div class=${`verdict ${data.intact ? 'good' : 'bad'}`} data-intact=${String(data.intact)} role="status">
      <span class="sign" aria-hidden="true">${data.intact ? '✓' : '✗'}</span>
      ${data.intact ? html`<${Intact} found=${data} />` : html`<${Broken} found=${data} />`}
    </div>
    <p class="act"><button type="button" onClick=${() => setTimes(times + 1)}>Verify again</button>
      ${newest > data.version && html`<span class="faint">${count(newest - data.version, 'frame')} came since.</span>`}</p>
    <h3>What this proves</h3>
    <p>Each frame is stored with a hash of itself and of the hash before it: a chain. It was just computed again from the
      stored frames. If a frame had been changed, removed or inserted, the chain would differ.</p>
    <h3>What it does not prove</h3>
    <p>A user with write access to the database can build another chain. Only what is stored elsewhere reveals that: the
      frames on Kafka, and a root that was recorded before.</p>
    <${Copied} label="the command that compares with Kafka and folds again">${`frameledger verify ${quoted(id)} --from kafka`}<//>
    <${Copied} label="the command that proves this conversation">${`frameledger prove ${quoted(id)} -o proof.jsonl`}<//>
  </section>`;
}

function Intact({found}) {
  return html`<div><h2>Intact</h2>
    <p>${found.frame_count === 1 ? 'The stored frame gives' : `All ${count(found.frame_count, 'stored frame')} give`} the
      chain that was stored with ${found.frame_count === 1 ? 'it' : 'them'}, up to version <${Version} at=${found.version} />.</p></div>`;
}

function Broken({found}) {
  return html`<div><h2>${found.broken_at === null ? 'Broken' : html`Broken at version <${Version} at=${found.broken_at} />`}</h2>
    <p>${found.problem ?? 'The stored frames do not give the stored chain.'}</p>
    ${found.broken_at > 1 && html`<p>Everything before version ${found.broken_at} is unchanged. From there on nothing is
      proved.</p>`}</div>`;
}
