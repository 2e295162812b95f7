/** One message of a context. All that it says is text: no markup, and nothing is fetched for it. */

import {to} from './address.js';
import {html} from './html.js';
import {placeOf} from './past.js';
import {parts, roleOf, speakerOf, text} from './words.js';

/** Pictures that are in the message itself; an SVG may hold more than a picture. */
const PICTURE = /^data:image\/(png|jpeg|gif|webp);base64,/;

/** Messages as they were drawn: where one is the same object, Preact leaves its elements alone. */
const drawn = new WeakMap();

/**
 * Returns a message, drawn. No component, and neither are its parts: a thousand of them would take longer to make than
 * their elements.
 * @param {{row: import('./past.js').Row, fresh: boolean, selected: boolean, unheard: string}} about `fresh`: the frame
 *   that is looked at made it. `unheard`: what was said of it and not heard
 */
export function message({row, fresh, selected, unheard}) {
  if (fresh || selected || unheard !== '') return drawing({row, fresh, selected, unheard});
  if (!drawn.has(row)) drawn.set(row, drawing({row, fresh, selected, unheard}));
  return drawn.get(row);
}

function drawing({row, fresh, selected, unheard}) {
  const {message} = row;
  const calls = Array.isArray(message?.tool_calls) ? message.tool_calls : [];
  return html`
    <li key=${placeOf(row)} data-place=${placeOf(row)} data-role=${roleOf(message)}
      class=${`message${fresh ? ' fresh' : ''}${selected ? ' selected' : ''}`}>
      ${speaker(message)}
      <div class="body">
        ${parts(message).map(part)}
        ${unheard && html`<p class="unheard"><span class="label">✂︎ said, not heard</span> <del>${unheard}</del></p>`}
        ${calls.map(call)}
      </div>
      <div class="from">
        ${fresh && html`<span class="new">new</span> `}
        <a ...${to({at: row.valid_from})} title="Go to the version that made it">${row.valid_from}</a>
        <a class="why" ...${to({tab: 'why', message: placeOf(row)})} title="Where it comes from">why</a>
      </div>
    </li>
  `;
}

/** A message that the frame that is looked at took away. @param {{row: import('./past.js').Row}} about */
export function Removed({row}) {
  return html`
    <li class="message removed fresh" data-role=${roleOf(row.message)}>
      ${speaker(row.message)}
      <div class="body"><p class="words"><del>${parts(row.message).map((part) => part.text).join(' ')}</del></p></div>
      <div class="from">removed</div>
    </li>
  `;
}

function speaker(message) {
  const {name, by} = speakerOf(message);
  const also = by || (message?.name ? text(message.name) : '');
  return html`<div class="role">${name}${also && html` <small>${also}</small>`}</div>`;
}

function part({kind, source, text: said}) {
  if (kind === 'image' && PICTURE.test(source)) {
    return html`<img class="picture" src=${source} alt=${said} />`;
  }
  return html`<p class=${kind === 'text' ? 'words' : 'words raw'}>${said}</p>`;
}

function call(call) {
  const {name, arguments: given} = call?.function ?? {};
  return html`<p class="call" data-call=${text(call?.id)}><b>${text(name)}</b> <code>${text(given)}</code></p>`;
}
