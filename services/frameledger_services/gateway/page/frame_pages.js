/** Fetches the frames of a conversation in pages, nearest to what is looked at first. */

/** Frames of the first page around the version that is looked at, and of those that follow. */
const NEAR = 300;
const PAGE = 500;
/** Of a conversation with more frames only those are fetched that are near to what is looked at. */
const ALL_UP_TO = 30_000;

export class FramePages {
  #near = 0;
  #busy = false;

  /**
   * @param {import('./loaded_frames.js').LoadedFrames} frames where they go
   * @param {(rest: string) => Promise<object>} get asks the API of the conversation
   * @param {() => void} changed called after each page
   */
  constructor(frames, get, changed) {
    this.frames = frames;
    this.get = get;
    this.changed = changed;
  }

  /** Fetches the page around a version. */
  async first(version) {
    const from = this.frames.missing(version, NEAR);
    if (from !== null) await this.#page(from - 1, NEAR);
  }

  /** Fetches what is missing, nearest to a version first. If that is going on, it goes on there. */
  async rest(version) {
    this.#near = version;
    if (this.#busy) return;
    this.#busy = true;
    try {
      for (let from = this.#next(); from !== null; from = this.#next()) await this.#page(from - 1, PAGE);
    } finally {
      this.#busy = false;
    }
  }

  #next() {
    const from = this.frames.missing(this.#near, PAGE);
    const isFar = this.frames.count > ALL_UP_TO && Math.abs(from - this.#near) > PAGE;
    return isFar ? null : from;
  }

  async #page(after, limit) {
    const {newest} = this.frames;
    const {frames} = await this.get(`/frames?after=${after}&limit=${limit}`);
    this.frames.put(frames);
    // What a page leaves out is not stored any more, and will not come: otherwise it would be asked for without end.
    this.frames.lose(after, frames.at(-1)?.version ?? newest);
    this.changed();
  }
}
