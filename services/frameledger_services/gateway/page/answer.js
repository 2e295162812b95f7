/** What the gateway answers to a panel: asked when it is shown, and again when something new came. */

import {html, useEffect, useRef, useState} from './html.js';
import {get} from './api.js';

/** Words come many times a second; what they change in a panel is asked for less often. */
const NOT_BEFORE = 700;
/** After a failure that passes. */
const AGAIN_AFTER = 1_500;
const NOTHING = {path: null, data: null, problem: null};

/**
 * Returns what a path answers. While it is asked again, what it answered before stays, also beside a problem that passes:
 * somebody may be writing there.
 * @param {string | null} path null asks nothing
 * @param {unknown} [again] asked again when it changes
 * @param {typeof get} [ask] `getExactly`, to show numbers as the gateway wrote them
 * @returns {{data: any, problem: any}} both null until there is an answer; both there while it cannot be asked again
 */
export function useAnswer(path, again, ask = get) {
  const [answer, setAnswer] = useState(NOTHING);
  const asker = useRef(null);
  useEffect(() => {
    if (path === null) return undefined;
    asker.current = new Asker(path, setAnswer, ask);
    return () => asker.current.end();
  }, [path]);
  useEffect(() => asker.current?.ask(), [path, again]);
  return answer.path === path ? answer : NOTHING;
}

/** Asks for a path: once at a time, and again afterwards if that was wished meanwhile. */
class Asker {
  #stop = new AbortController();
  #isAsking = false;
  #isStale = false;
  #data = null;

  constructor(path, tell, get) {
    this.path = path;
    this.tell = tell;
    this.get = get;
  }

  async ask() {
    this.#isStale = this.#isAsking;
    if (this.#isAsking) return;
    this.#isAsking = true;
    const found = await this.get(this.path, {signal: this.#stop.signal}).then(
      (data) => ({path: this.path, data, problem: null}),
      (problem) => ({path: this.path, data: problem.passes ? this.#data : null, problem}),
    );
    if (this.#stop.signal.aborted) return;
    this.#data = found.data;
    const passes = found.problem?.passes === true;
    this.#isStale ||= passes;
    this.tell(found);
    setTimeout(() => this.#rested(), passes ? AGAIN_AFTER : NOT_BEFORE);
  }

  end() {
    this.#stop.abort();
  }

  #rested() {
    if (this.#stop.signal.aborted) return;
    if (document.hidden) {
      // Nobody sees it: it waits until somebody does.
      setTimeout(() => this.#rested(), AGAIN_AFTER);
      return;
    }
    this.#isAsking = false;
    if (this.#isStale) this.ask();
  }
}

/** What stands in the place of an answer that is not there: that it is on its way, or why it will not come. */
export function Missing({problem, what}) {
  return problem === null
    ? html`<p class="waiting" role="status">Reading ${what} …</p>`
    : html`<${Trouble} problem=${problem} />`;
}

/** Why a request was not done, and where that is explained. */
export function Trouble({problem}) {
  return html`<p class="trouble" role="alert"><strong>${problem.title ?? 'This did not work'}.</strong> ${problem.detail ?? problem.message}
    ${problem.type?.startsWith('/problems/') && html` <a href=${problem.type} target="_blank">What to do</a>`}</p>`;
}
