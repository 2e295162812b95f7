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
    /** How many of them are here, or known to be lost. */
    this.here = 0;
    /** @type {(Frame|null|undefined)[][]} null: not stored any more. A chunk that changes becomes another array */
    this.chunks = [];
  }

  /** The newest version that is known of. */
  get newest() {
    return this.first + this.count;
  }

  /** @returns {Frame|undefined} */
  at(version) {
    return this.#known(version) ?? undefined;
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
    this.#set(frames.filter(({version}) => this.at(version) === undefined).map((frame) => [frame.version, frame]));
  }

  /** Notes that of the frames behind a version, up to another one, those that are not here are not stored any more. */
  lose(after, last) {
    const lost = [];
    for (let version = after + 1; version <= last; version += 1) {
      if (this.#known(version) === undefined) lost.push([version, null]);
    }
    this.#set(lost);
  }

  /** Returns the first version from which on `most` frames or fewer are to be fetched; null if there are none. */
  missing(near, most) {
    if (this.here === this.count) return null;
    const start = Math.max(this.first + 1, near - Math.floor(most / 2));
    for (let version = start; version <= this.newest; version += 1) {
      if (this.#known(version) === undefined) return version;
    }
    for (let version = this.first + 1; version < start; version += 1) {
      if (this.#known(version) === undefined) return version;
    }
    return null;
  }

  /** Returns what is known of a version: its frame, null if that is lost, undefined if it was not asked for yet. */
  #known(version) {
    const index = version - this.first - 1;
    return index < 0 ? undefined : this.chunks[Math.floor(index / CHUNK)]?.[index % CHUNK];
  }

  /** @param {[number, Frame|null][]} known by version */
  #set(known) {
    const renewed = new Set();
    for (const [version, frame] of known) {
      const index = version - this.first - 1;
      if (index < 0) continue;
      const chunk = Math.floor(index / CHUNK);
      if (!renewed.has(chunk)) this.#renew(chunk);
      renewed.add(chunk);
      if (this.chunks[chunk][index % CHUNK] === undefined) this.here += 1;
      this.chunks[chunk][index % CHUNK] = frame;
    }
  }

  #renew(index) {
    const size = Math.min(CHUNK, this.count - index * CHUNK);
    this.chunks[index] = Object.assign(new Array(size).fill(undefined), this.chunks[index]);
  }
}
