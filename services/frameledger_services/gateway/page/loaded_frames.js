/**
 * The frames of a conversation that are here, by their versions, in chunks that are drawn as one.
 *
 * @typedef {{version: number, id: string, type: string, outcome: string, reason: string|null, logged_at: string,
 *   run_id: string|null, frame: object}} Frame
 */

export const CHUNK = 100;

export class LoadedFrames {
  /** @param {number} first the version behind which the first frame is: 0, but for a life after an erasure */
  constructor(first) {
    this.first = first;
    /** How many frames there are, here or not. */
    this.count = 0;
    /** How many of them are here. */
    this.here = 0;
    /** @type {(Frame|undefined)[][]} a chunk that changes becomes another array */
    this.chunks = [];
  }

  /** The newest version that is known of. */
  get newest() {
    return this.first + this.count;
  }

  /** @returns {Frame|undefined} */
  at(version) {
    const index = version - this.first - 1;
    return index < 0 ? undefined : this.chunks[Math.floor(index / CHUNK)]?.[index % CHUNK];
  }

  /** Notes that there are frames up to a version. */
  reach(version) {
    if (version <= this.newest) return;
    const before = Math.floor(this.count / CHUNK);
    this.count = version - this.first;
    for (let index = before; index * CHUNK < this.count; index += 1) this.#renew(index);
  }

  /** Takes frames in. Those that are here already are kept. @param {Frame[]} frames */
  put(frames) {
    if (frames.length === 0) return;
    this.reach(Math.max(...frames.map((one) => one.version)));
    const renewed = new Set();
    for (const frame of frames) {
      const index = frame.version - this.first - 1;
      if (index < 0 || this.at(frame.version) !== undefined) continue;
      const chunk = Math.floor(index / CHUNK);
      if (!renewed.has(chunk)) this.#renew(chunk);
      renewed.add(chunk);
      this.chunks[chunk][index % CHUNK] = frame;
      this.here += 1;
    }
  }

  /** Returns the first version from which on `most` frames or fewer are to be fetched; null if all are here. */
  missing(near, most) {
    if (this.here === this.count) return null;
    const start = Math.max(this.first + 1, near - Math.floor(most / 2));
    for (let version = start; version <= this.newest; version += 1) {
      if (this.at(version) === undefined) return version;
    }
    for (let version = this.first + 1; version < start; version += 1) {
      if (this.at(version) === undefined) return version;
    }
    return null;
  }

  #renew(index) {
    const size = Math.min(CHUNK, this.count - index * CHUNK);
    this.chunks[index] = Object.assign(new Array(size).fill(undefined), this.chunks[index]);
  }
}
