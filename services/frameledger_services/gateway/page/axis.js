/**
 * Time as it is drawn and replayed: pauses over two seconds are shortened, so that a day of silence between two turns
 * does not press both into a line.
 */

const PAUSE = 2_000;
/** So long takes a frame that was logged together with the one before it: no two are at one place. */
const MIN_GAP = 1;

/** Returns the displayed length of this many milliseconds: pauses stay in the order of their lengths. */
export function shortened(milliseconds) {
  if (milliseconds <= PAUSE) return Math.max(milliseconds, 0);
  return PAUSE + (PAUSE / 4) * Math.log2(milliseconds / PAUSE);
}

export class Axis {
  /** @param {import('./loaded_frames.js').LoadedFrames} frames those that are not here take the least time */
  constructor(frames) {
    this.first = frames.first;
    this.newest = frames.newest;
    this.offsets = new Float64Array(frames.count + 1);
    /** @type {{version: number, pause: number}[]} the pauses that are far shorter here than they were, before versions */
    this.pauses = [];
    let before = null;
    for (let index = 1; index <= frames.count; index += 1) {
      const version = frames.first + index;
      const logged = frames.at(version)?.logged_at;
      const time = logged === undefined ? before : Date.parse(logged);
      const gap = before === null || time === null ? 0 : time - before;
      this.offsets[index] = this.offsets[index - 1] + Math.max(shortened(gap), MIN_GAP);
      if (gap > 2 * shortened(gap)) this.pauses.push({version, pause: gap});
      before = time;
    }
    this.length = this.offsets[frames.count];
  }

  /** Returns the milliseconds from the first frame to that of a version. */
  offset(version) {
    return this.offsets[Math.min(Math.max(version, this.first), this.newest) - this.first];
  }

  /** Returns where a version is, from 0 to 1. */
  part(version) {
    return this.length === 0 ? 0 : this.offset(version) / this.length;
  }

  /** Returns the newest version that was there after this many milliseconds. */
  versionAt(offset) {
    let low = 0;
    let high = this.offsets.length - 1;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (this.offsets[middle] <= offset) low = middle;
      else high = middle - 1;
    }
    return this.first + low;
  }
}
