/** The pages of the list, and how they stay true: those that are seen are asked for again, and only rows that differ
 * are drawn. */

import {getPage} from './api.js';
import {useEffect, useReducer, useRef} from './html.js';

const AGAIN_AFTER = 2_000;

/**
 * @typedef {{path: string, rows: object[], next: string|null}} ListPage
 */
class Pages {
  /** @type {ListPage[]} */
  list = [];
  problem = null;
  busy = true;
  #stop = new AbortController();
  #timer = null;
  #visible = new Set();
  #before;
  #draw;
  #observer;

  /** @param {ListPage[]} before what is shown until there is something: nothing flickers while somebody types */
  constructor(path, draw, before) {
    this.path = path;
    this.#before = before;
    this.#draw = draw;
    this.#observer = new IntersectionObserver((entries) => {
      for (const {target, isIntersecting} of entries) {
        if (isIntersecting) this.#visible.add(target.dataset.path);
        else this.#visible.delete(target.dataset.path);
      }
    });
    this.#load(path);
  }

  get shown() {
    return this.busy && this.list.length === 0 ? this.#before : this.list;
  }

  get next() {
    return this.list.at(-1)?.next ?? null;
  }

  more = () => {
    this.busy = true;
    this.#draw();
    this.#load(this.next);
  };

  again = () => {
    this.problem = null;
    this.busy = true;
    this.#draw();
    this.#load(this.path);
  };

  /** Notes where a page is drawn. Returns what ends that. */
  seen = (element, path) => {
    element.dataset.path = path;
    this.#observer.observe(element);
    return () => this.#observer.unobserve(element);
  };

  close() {
    clearTimeout(this.#timer);
    this.#stop.abort();
    this.#observer.disconnect();
  }

  async #load(path) {
    await this.#ask(path);
    this.busy = false;
    this.#draw();
    this.#timer ??= setTimeout(this.#renew, AGAIN_AFTER);
  }

  /** The first page is always asked for, since conversations begin there. */
  #renew = async () => {
    const paths = this.list.map((page) => page.path).filter((path) => path === this.path || this.#visible.has(path));
    if (!document.hidden) for (const path of paths) await this.#ask(path);
    if (!this.#stop.signal.aborted) this.#timer = setTimeout(this.#renew, AGAIN_AFTER);
  };

  async #ask(path) {
    try {
      const {value, next} = await getPage(path, {signal: this.#stop.signal});
      const changed = this.#put(path, value.contexts, next) || this.problem !== null;
      this.problem = null;
      if (changed) this.#draw();
    } catch (problem) {
      if (problem.name === 'AbortError') return;
      this.problem = problem;
      this.#draw();
    }
  }

  /** Takes a page in; rows that are as they were stay the same objects. Returns whether anything differs. */
  #put(path, rows, next) {
    const index = this.list.findIndex((page) => page.path === path);
    const before = this.list[index];
    if (before === undefined) {
      this.list = [...this.list, {path, rows, next}];
      return true;
    }
    const known = new Map(before.rows.map((row) => [row.context_id, row]));
    const now = [...rows, ...(next === null ? [] : displaced(before.rows, rows))].map((row) => {
      const same = known.get(row.context_id);
      return same !== undefined && JSON.stringify(same) === JSON.stringify(row) ? same : row;
    });
    if (now.length === before.rows.length && now.every((row, at) => row === before.rows[at])) return false;
    // The page behind it begins where this one ended when it was first asked for.
    const page = {path, rows: now, next: index === this.list.length - 1 && before.rows.length === 0 ? next : before.next};
    this.list = this.list.map((one) => (one === before ? page : one));
    return true;
  }
}

/** Returns the rows that newer ones pushed off the end of a page: the page behind it does not have them. */
function displaced(before, rows) {
  const there = new Set(rows.map((row) => row.context_id));
  return before.filter((row) => !there.has(row.context_id) && row.started_at < rows.at(-1).started_at);
}

/** Returns the pages of a list, from its path in the API on. */
export function usePages(path) {
  const [, draw] = useReducer((drawn) => drawn + 1, 0);
  const pages = useRef(null);
  if (pages.current === null || pages.current.path !== path) {
    pages.current?.close();
    pages.current = new Pages(path, draw, pages.current?.list ?? []);
  }
  useEffect(() => () => pages.current.close(), []);
  return pages.current;
}
