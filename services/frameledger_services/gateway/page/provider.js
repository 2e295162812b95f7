/** A request as a provider got it, taken apart so that a person can read it. Pure functions; what is unknown stays JSON. */

import {parts, roleOf, speakerOf, text} from './words.js';

/**
 * Returns the turns of a request: its system instruction, then its messages.
 * @returns {{role: string, name: string, parts: {kind: 'words'|'thought'|'call'|'result'|'other', text: string, name?: string, id?: string}[]}[]}
 */
export function turnsOf(request) {
  const system = request.system ?? request.instructions;
  const turns = system === undefined || system === null ? [] : [{role: 'system', name: 'system', parts: partsOf({content: system})}];
  for (const message of request.messages ?? request.input ?? []) {
    turns.push({role: roleOf(message), name: speakerOf(message).name, parts: [...partsOf(message), ...callsOf(message)]});
  }
  return turns;
}

/** Returns the tools of a request, whichever form they have. */
export function toolsOf(request) {
  return (request.tools ?? []).map((tool) => {
    const own = tool.function ?? tool;
    return {name: text(own.name ?? tool.type), description: own.description ?? '', parameters: own.parameters ?? own.input_schema};
  });
}

/** Returns the other fields of a request, such as the model and the temperature. */
export function othersOf(request) {
  const shown = ['system', 'instructions', 'messages', 'input', 'tools'];
  return Object.entries(request).filter(([name]) => !shown.includes(name));
}

function partsOf(message) {
  if (message.role === 'tool') return [{kind: 'result', id: message.tool_call_id, text: text(message.content)}];
  if (!Array.isArray(message.content)) return parts(message).map(({kind, text: said}) => ({kind: kind === 'other' ? kind : 'words', text: said}));
  return message.content.map(block);
}

function block(one) {
  switch (one?.type) {
    case 'text': return {kind: 'words', text: text(one.text)};
    case 'thinking': return {kind: 'thought', text: text(one.thinking)};
    case 'tool_use': return {kind: 'call', name: text(one.name), id: one.id, text: text(one.input, 2)};
    case 'tool_result': return {kind: 'result', id: one.tool_use_id, text: text(one.content)};
    default: return {kind: 'other', text: text(one, 2)};
  }
}

function callsOf({tool_calls: calls}) {
  if (!Array.isArray(calls)) return [];
  return calls.map((call) => ({kind: 'call', name: text(call.function?.name ?? call.type), id: call.id, text: text(call.function?.arguments ?? call)}));
}
