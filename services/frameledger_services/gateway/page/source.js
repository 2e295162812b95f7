/** What the page knows of one conversation: its past, its frames, and what comes while it is watched. */

import {contextPath, get, getAgain} from './api.js';
import {FramePages} from './frame_pages.js';
import {Live} from './live.js';
import {LoadedFrames} from './loaded_frames.js';
import {eraAt, joined, pastOf} from './past.js';

/** The number of no era: an answer without rows, which says how much there is. */
const NO_ERA = 2 ** 31 - 1;
/** A conversation with more frames is read era by era, as they are looked at. */
const WHOLE_UP_TO = 5_000;
/** Frames that are no message by themselves and change none: behind them the past is what it was. */
const NEUTRAL = new Set(['LLMTextFrame', 'TextFrame', 'VisionTextFrame', 'LLMThoughtTextFrame', 'InterimTranscriptionFrame']);

export class Source {
  constructor(id) {
    this.id = id;
    /** The newest version whose context is known; null before anything is. */
    this.newest = null;
    this.past = null;
    this.frames = null;
    this.problem = null;
    this.generation = 0;
    /** What the stream does, and what the conversation does, as the stream says. */
    this.state = 'connecting';
    this.status = null;
    this.#stop = new AbortController();
  }

  #stop;
  #live = null;
  /** The version of the newest answer of `/history`. */
  #known = 0;
  #asking = false;
  #pages = null;
  #listeners = new Set();
  #eras = new Map();

  /** Begins to load, nearest to this version first; null for the newest. */
  async open(at) {
    try {
      const about = await this.#history(NO_ERA);
      this.#begin(about);
      const near = at ?? this.newest;
      await Promise.all([this.#firstRows(near), this.#pages.first(near)]);
      this.#changed();
      if (this.#stop.signal.aborted) return;
      this.#live ??= new Live(this.id, () => this.frames.newest, this.#told);
      await this.loadFrames(near);
    } catch (problem) {
      this.#fail(problem);
    }
  }

  /** Loads the messages of the era that held at a version, if they are not here. */
  async ensure(version) {
    const era = eraAt(this.past, version);
    if (this.past.rows.has(era)) return;
    if (!this.#eras.has(era)) this.#eras.set(era, this.#era(era).catch((problem) => this.#fail(problem)));
    await this.#eras.get(era);
  }

  /** Loads frames that are not here, nearest to a version first. */
  async loadFrames(near) {
    await this.#pages.rest(near).catch((problem) => this.#fail(problem));
  }

  /** Forgets everything and begins anew: after a problem, and when the tables are other ones, or empty. */
  again() {
    this.problem = null;
    this.#live?.close();
    this.#live = null;
    this.#eras.clear();
    this.past = this.frames = this.newest = this.#pages = null;
    this.#changed();
    this.open(null);
  }

  /** Ends what is being loaded. */
  close() {
    this.#stop.abort();
    this.#live?.close();
    this.#listeners.clear();
  }

  /** Calls `listener` after each change. Returns what ends that. */
  subscribe(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #told = {
    frames: (found) => {
      this.frames.put(found);
      this.#advance();
      if (this.frames.newest > this.newest) this.#refresh();
      this.#changed();
    },
    head: ({status}) => {
      this.status = status;
      this.#changed();
    },
    state: (now) => {
      this.state = now;
      this.#changed();
    },
    reset: () => this.again(),
    gone: () => this.again(),
    lost: async () => {
      try {
        const {version} = await get(this.#path(`/history?era=${NO_ERA}`));
        this.state = version > this.newest ? 'reconnecting' : 'over';
      } catch (problem) {
        if (!problem.passes) return this.#fail(problem);
        this.state = 'reconnecting';
      }
      this.#changed();
      return true;
    },
  };

  /** Neutral frames need no answer of `/history`. */
  #advance() {
    while (NEUTRAL.has(this.frames.at(this.newest + 1)?.type)) this.newest += 1;
  }

  /** Asks what changed, once at a time, until there is nothing newer. */
  async #refresh() {
    if (this.#asking) return;
    this.#asking = true;
    try {
      const [after, life] = [this.#known, this.#pages];
      const answer = await this.#get(`/history?after=${after}`);
      // What was asked before everything began anew is of other tables.
      if (life !== this.#pages) return;
      this.past = joined(this.past, answer, after);
      this.#known = answer.version;
      this.#reach(answer.version);
      this.#advance();
      this.#changed();
      if (this.frames.newest > this.newest) setTimeout(() => this.#refresh());
    } catch (problem) {
      this.#fail(problem);
    } finally {
      this.#asking = false;
    }
  }

  #begin(about) {
    this.past = {...pastOf(about), rows: new Map()};
    this.newest = this.#known = about.version;
    this.frames = new LoadedFrames(about.first);
    this.frames.reach(about.version);
    this.#pages = new FramePages(this.frames, (rest) => this.#get(rest), () => this.#changed());
  }

  async #firstRows(near) {
    if (this.frames.count > WHOLE_UP_TO) {
      await this.ensure(near);
      return;
    }
    const answer = await this.#history(null);
    this.past = pastOf(answer);
    this.#known = answer.version;
    this.#reach(answer.version);
  }

  async #era(era) {
    const life = this.#pages;
    const answer = await this.#history(era);
    if (life !== this.#pages) return;
    const rows = new Map(this.past.rows).set(era, pastOf(answer, era).rows.get(era));
    this.past = {...this.past, rows};
    this.#eras.delete(era);
    this.#changed();
  }

  #history(era) {
    return this.#get(era === null ? '/history' : `/history?era=${era}`);
  }

  /** Once something is shown, a gateway that is away is waited for. */
  #get(rest) {
    const {signal} = this.#stop;
    return this.past === null ? get(this.#path(rest), {signal}) : getAgain(this.#path(rest), {signal});
  }

  #path(rest) {
    return contextPath(this.id, rest);
  }

  #reach(version) {
    this.newest = Math.max(this.newest, version);
    this.frames.reach(this.newest);
  }

  #fail(problem) {
    if (problem.name === 'AbortError') return false;
    this.problem = problem;
    this.#changed();
    return false;
  }

  #changed() {
    this.generation += 1;
    this.#listeners.forEach((listener) => listener());
  }
}
