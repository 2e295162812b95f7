/**
 * A conversation as it goes on: the gateway's stream of events. A browser resumes it by itself; what a browser takes
 * for the end is asked again.
 *
 * @typedef {'connecting'|'live'|'reconnecting'|'over'|'paused'} State  `over`: the conversation ended, and all of it is
 *   here; it may be opened again
 */

import {contextPath} from './api.js';
import {parse} from './json.js';

const AGAIN_AFTER = 4_000;

export class Live {
  #source = null;
  #again = null;
  #buffer = [];
  #closed = false;

  /**
   * @param {string} id the conversation
   * @param {() => number} after the version behind which it goes on
   * @param {{frames: (found: object[]) => void, head: (about: object) => void, reset: () => void,
   *   gone: () => void, state: (now: State) => void, lost: () => Promise<boolean>}} told
   *   `lost`: the stream ended and does not say why; whether it is worth asking again
   */
  constructor(id, after, told) {
    this.id = id;
    this.after = after;
    this.told = told;
    document.addEventListener('visibilitychange', this.#look);
    this.#look();
  }

  close() {
    this.#closed = true;
    document.removeEventListener('visibilitychange', this.#look);
    this.#end();
  }

  /** A page that nobody sees has no stream: a browser has six connections to a server, and each tab has one. */
  #look = () => {
    if (this.#closed) return;
    if (document.hidden) {
      this.#end();
      this.told.state('paused');
    } else if (this.#source === null) {
      this.#begin();
    }
  };

  #begin() {
    clearTimeout(this.#again);
    this.told.state('connecting');
    const source = new EventSource(`${contextPath(this.id, '/stream')}?after=${this.after()}`);
    this.#source = source;
    source.addEventListener('frame', (event) => this.#frame(parse(event.data)));
    source.addEventListener('head', (event) => {
      this.#flush();
      this.told.head(JSON.parse(event.data));
      this.told.state('live');
    });
    source.addEventListener('reset', () => {
      this.#end();
      this.told.reset();
    });
    source.addEventListener('gone', () => {
      this.#end();
      this.told.gone();
    });
    source.addEventListener('error', () => this.#failed(source));
  }

  /** Frames that come together are shown together. */
  #frame(found) {
    this.#buffer.push(found);
    if (this.#buffer.length === 1) requestAnimationFrame(() => this.#flush());
  }

  #flush() {
    const found = this.#buffer.splice(0);
    if (found.length > 0 && !this.#closed) this.told.frames(found);
  }

  async #failed(source) {
    if (this.#closed || source !== this.#source) return;
    if (source.readyState !== EventSource.CLOSED) {
      this.told.state('reconnecting');
      return;
    }
    this.#end();
    const goesOn = await this.told.lost();
    // The conversation may have been left meanwhile.
    if (goesOn && !this.#closed) this.#again = setTimeout(this.#look, AGAIN_AFTER);
  }

  #end() {
    clearTimeout(this.#again);
    this.#source?.close();
    this.#source = null;
    this.#buffer = [];
  }
}
