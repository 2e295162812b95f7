/** The context at a version: what a model would be given; and behind it what is being said and is no message yet. */

import {to} from './address.js';
import {count} from './format.js';
import {html, useEffect, useLayoutEffect, useRef} from './html.js';
import {Removed, message} from './message.js';
import {messagesAt, placeOf, removedAt, termsAt} from './past.js';
import {openAnswer, openTurn, unheard} from './speech.js';
import {Terms} from './terms.js';

const CHUNK = 50;

/**
 * @param {{source: import('./source.js').Source, at: number, sticks: boolean, selected: string|null}} about `sticks`:
 *   the end stays in view, unless the reader scrolled away from it
 */
export function Context({source, at, sticks, selected}) {
  const {past, frames} = source;
  const rows = messagesAt(past, at);
  const removed = removedAt(past, at).map((row) => html`<${Removed} key=${`removed ${placeOf(row)}`} row=${row} />`);
  const behind = [...removed, ...openAt(frames, at)];
  const scroller = useRef(null);
  const chunks = inChunks(rows ?? []);
  const made = (rows ?? []).findIndex((row) => isMade(row, at));
  // What was taken away is drawn behind the messages.
  const taken = removed.length > 0 ? [chunks.length, 0] : null;
  const fresh = made < 0 ? taken : [Math.floor(made / CHUNK), made % CHUNK];
  useEffect(() => {
    if (rows === null) source.ensure(at);
  }, [at, rows === null]);
  useInView({scroller, at, fresh, sticks, selected});
  return html`
    <section class="context" aria-label="Context" data-version=${rows === null ? null : at}>
      <h2>Context <small>${rows === null ? 'loading …' : `at ${at}: ${count(rows.length, 'message')}`}</small></h2>
      <div class="rows" ref=${scroller}>
        <${Terms} ...${termsAt(past, at)} at=${at} />
        ${chunks.map((chunk, index) => html`<ol key=${index} class="messages" start=${index * CHUNK + 1} style=${{'--rows': chunk.length}}
          aria-label=${`Messages ${index * CHUNK + 1} to ${index * CHUNK + chunk.length}`}>
          ${chunk.map((row) => message({row, fresh: isMade(row, at), selected: selected !== null && selected === placeOf(row),
            unheard: unheard(frames, past, row)}))}
        </ol>`)}
        ${behind.length > 0 && html`<ol key="now" class="messages now" aria-label="Removed text, and text that is being said">${behind}</ol>`}
        ${rows?.length === 0 && html`<p class="empty">No message yet.</p>`}
      </div>
    </section>
  `;
}

/** Messages in lists of which the browser lays out those that are seen. */
function inChunks(rows) {
  return Array.from({length: Math.ceil(rows.length / CHUNK)}, (_, index) => rows.slice(index * CHUNK, (index + 1) * CHUNK));
}

/** Whether the version that is looked at made a message. */
function isMade(row, at) {
  return row.valid_from === at && at > 0;
}

/** What is being said at a version. */
function openAt(frames, at) {
  const turn = openTurn(frames, at);
  const answer = openAnswer(frames, at);
  return [
    turn !== null && html`<li key="turn" class="message open" data-role="user">
      <div class="role">user</div>
      <div class="body"><p class="words">${turn.text.trim()} ${turn.interim && html`<i>${turn.interim}</i>`}<${Caret} /></p></div>
      <div class="from">is speaking, since <a ...${to({at: turn.since})}>${turn.since}</a></div>
    </li>`,
    answer !== null && html`<li key="answer" class="message open" data-role="assistant">
      <div class="role">assistant</div>
      <div class="body">
        ${answer.thought && html`<p class="words thought">${answer.thought}</p>`}
        <p class="words">${answer.text.trimStart()}<${Caret} /></p>
      </div>
      <div class="from">is answering, since <a ...${to({at: answer.since})}>${answer.since}</a></div>
    </li>`,
  ].filter(Boolean);
}

function Caret() {
  return html`<span class="caret" aria-hidden="true"></span>`;
}

/**
 * Keeps in view what a step is about: the end if it was there, else what the version made, else what was asked for.
 * `fresh` is the place of what it made, the list and the one in it, null for nothing: to look for it would take longer
 * than to draw the step. What is drawn again without a step moves nothing.
 */
function useInView({scroller, at, fresh, sticks, selected}) {
  const place = useRef({top: 0, isAtEnd: true, isLeft: false, sticks: false, shown: null});
  // Only the reader scrolls up between two drawings. What comes makes the end go away, and moves nothing.
  const look = () => {
    const {scrollTop: top} = scroller.current;
    const isAtEnd = atEnd(scroller.current);
    if (isAtEnd) place.current.isLeft = false;
    else if (top < place.current.top) place.current.isLeft = true;
    place.current.top = top;
    return isAtEnd;
  };
  useEffect(() => {
    const element = scroller.current;
    const note = () => {
      place.current.isAtEnd = look();
    };
    element.addEventListener('scroll', note, {passive: true});
    return () => element.removeEventListener('scroll', note);
  }, []);
  useLayoutEffect(() => {
    const element = scroller.current;
    const now = place.current;
    // The browser tells of a scroll a little later than a frame may come.
    look();
    if (sticks && !now.sticks) now.isLeft = false;
    if (sticks ? !now.isLeft : now.isAtEnd) element.scrollTop = element.scrollHeight;
    const shown = fresh && `${at} ${fresh}`;
    if (shown !== now.shown && shown !== null && !(sticks && now.isLeft)) {
      within(element, element.querySelectorAll('.messages')[fresh[0]].children[fresh[1]]);
    }
    Object.assign(now, {top: element.scrollTop, isAtEnd: atEnd(element), sticks, shown});
  });
  useLayoutEffect(() => {
    const chosen = selected && scroller.current.querySelector(`[data-place="${CSS.escape(selected)}"]`);
    if (chosen) within(scroller.current, chosen);
  }, [selected]);
}

function atEnd(element) {
  return element.scrollHeight - element.scrollTop - element.clientHeight < 60;
}

/** Scrolls as little as it takes; the window stays where it is. */
function within(element, child) {
  const outer = element.getBoundingClientRect();
  const {top, bottom} = child.getBoundingClientRect();
  if (top < outer.top) element.scrollTop += top - outer.top - 8;
  else if (bottom > outer.bottom) element.scrollTop += Math.min(bottom - outer.bottom + 8, top - outer.top);
}
