// A front end for tests: the official client of AG-UI, told what to do by lines of JSON, which it answers by such lines.
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";
import { HttpAgent, runHttpRequest, transformHttpEventStream } from "@ag-ui/client";

// The client leaves it to others how to come back to a run: here it is a GET.
class Agent extends HttpAgent {
  connect() {
    const address = `${this.url}/${encodeURIComponent(this.threadId)}`;
    return transformHttpEventStream(runHttpRequest(() => fetch(address, { headers: this.headers })));
  }
}

const [url] = process.argv.slice(2);
const agents = new Map();

async function obey({ thread, say, messages, connect, stop, ...run }) {
  const agent = agents.get(thread) ?? new Agent({ url, threadId: thread });
  agents.set(thread, agent);
  if (messages) agent.setMessages(messages);
  if (say) agent.addMessage({ id: randomUUID(), role: "user", content: say });
  const told = { events: [], outcome: null, error: null };
  const subscriber = {
    onEvent: ({ event }) => void told.events.push(event),
    onTextMessageContentEvent: ({ textMessageBuffer }) => {
      if (stop && textMessageBuffer.includes(stop)) agent.abortRun();
    },
    onRunFinishedEvent: ({ outcome }) => void (told.outcome = outcome),
  };
  try {
    await (connect ? agent.connectAgent(run, subscriber) : agent.runAgent(run, subscriber));
  } catch (error) {
    told.error = String(error);
  }
  return { ...told, messages: agent.messages, interrupts: agent.pendingInterrupts };
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await obey(JSON.parse(line)))}\n`);
}
