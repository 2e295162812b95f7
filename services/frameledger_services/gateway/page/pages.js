/** The pages of the list, and how they stay true: those that are seen are asked for again, and those that begin
 * elsewhere, because the page before them ends elsewhere. Only rows that differ are drawn. */

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
  /** The indexes of the pages that are seen. */
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
        if (isIntersecting) this.#visible.add(Number(target.dataset.page));
        else this.#visible.delete(Number(target.dataset.page));
      }
    });
    this.#load(0, path);
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
    this.#load(this.list.length, this.next);
  };

  again = () => {
    this.problem = null;
    this.busy = true;
    this.#draw();
    this.#load(0, this.path);
  };

  /** Notes where a page is drawn. Returns what ends that. */
  seen = (element, index) => {
    element.dataset.page = index;
    this.#observer.observe(element);
    return () => {
      this.#observer.unobserve(element);
      this.#visible.delete(index);
    };
  };

  close() {
    clearTimeout(this.#timer);
    this.#stop.abort();
    this.#observer.disconnect();
  }

  async #load(index, path) {
    await this.#ask(index, path);
    this.busy = false;
    this.#draw();
    this.#timer ??= setTimeout(this.#renew, AGAIN_AFTER);
  }

  #renew = async () => {
    if (!document.hidden) await this.#renewAll();
    if (!this.#stop.signal.aborted) this.#timer = setTimeout(this.#renew, AGAIN_AFTER);
  };

  /**
   * The first page is always asked for, since conversations begin there. Those that it has no room for any more are on
   * the page behind it, which then begins with them.
   */
  async #renewAll() {
    let path = this.path;
    let index = 0;
    for (; path !== null && index < this.list.length; index += 1) {
      const isMoved = this.list[index].path !== path;
      if (index === 0 || isMoved || this.#visible.has(index)) await this.#ask(index, path);
      path = this.list[index]?.next ?? null;
    }
    if (index === this.list.length) return;
    // There are fewer conversations than there were.
    this.list = this.list.slice(0, index);
    this.#draw();
  }

  async #ask(index, path) {
    try {
      const {value, next} = await getPage(path, {signal: this.#stop.signal});
      const changed = this.#put(index, {path, rows: value.contexts, next}) || this.problem !== null;
      this.problem = null;
      if (changed) this.#draw();
    } catch (problem) {
      if (problem.name === 'AbortError') return;
      this.problem = problem;
      this.#draw();
    }
  }

  /** Takes a page in; rows that are as they were stay the same objects. Returns whether anything differs. */
  #put(index, {path, rows, next}) {
    const before = this.list[index] ?? {path: null, rows: [], next: null};
    const known = new Map(before.rows.map((row) => [row.context_id, row]));
    const now = rows.map((row) => {
      const same = known.get(row.context_id);
      return same !== undefined && JSON.stringify(same) === JSON.stringify(row) ? same : row;
    });
    const isSame = now.length === before.rows.length && now.every((row, at) => row === before.rows[at]);
    if (isSame && path === before.path && next === before.next) return false;
    // Drawn anew are only pages whose rows are another array.
    const page = {path, rows: isSame ? before.rows : now, next};
    this.list = [...this.list.slice(0, index), page, ...this.list.slice(index + 1)];
    return true;
  }
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
