/** The context at a version: what a model would be given. */

import {count} from './format.js';
import {html, useEffect} from './html.js';
import {Message} from './message.js';
import {messagesAt, placeOf, termsAt} from './past.js';
import {Terms} from './terms.js';

/** @param {{source: import('./source.js').Source, at: number}} about */
export function Context({source, at}) {
  const rows = messagesAt(source.past, at);
  useEffect(() => {
    if (rows === null) source.ensure(at);
  }, [at, rows === null]);
  const terms = termsAt(source.past, at);
  return html`
    <section class="context" aria-label="Context" data-version=${rows === null ? null : at}>
      <h2>
        Context <small>${rows === null ? 'loading …' : count(rows.length, 'message')}</small>
      </h2>
      <div class="rows">
        <${Terms} ...${terms} at=${at} />
        <ol class="messages">
          ${(rows ?? []).map((row) => html`<${Message} key=${placeOf(row)} row=${row} fresh=${row.valid_from === at} at=${at} />`)}
        </ol>
        ${rows?.length === 0 && html`<p class="empty">No message yet.</p>`}
      </div>
    </section>
  `;
}
