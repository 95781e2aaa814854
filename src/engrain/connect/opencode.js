// engrain: gives opencode a memory. Written by `engrain connect`; `engrain disconnect` removes it.
import { spawn } from "node:child_process"

const HOOK = HOOK_COMMAND
const LIMIT_MS = 1500 * Number(process.env.ENGRAIN_HOOK_PATIENCE || 1)

function call(event, payload) {
  return new Promise((resolve) => {
    let text = ""
    let child
    try {
      child = spawn(HOOK[0], [...HOOK.slice(1), event], { stdio: ["pipe", "pipe", "ignore"] })
    } catch {
      return resolve({})
    }
    const timer = setTimeout(() => resolve({}), LIMIT_MS) // the hook goes on: it keeps the event
    child.on("error", () => resolve({}))
    child.stdin.on("error", () => {})
    child.stdout.on("data", (part) => (text += part))
    child.on("close", () => {
      clearTimeout(timer)
      try {
        resolve(JSON.parse(text))
      } catch {
        resolve({})
      }
    })
    child.stdin.end(JSON.stringify(payload))
  })
}

export const Engrain = async ({ client, directory }) => {
  const started = new Set()
  const children = new Set()

  async function addContext(sessionID, output, event, payload) {
    const { additionalContext } = await call(event, payload)
    if (!additionalContext) return
    const last = output.parts.at(-1) ?? {}
    const id = "prt_engrain" + Date.now().toString(36) + Math.random().toString(36).slice(2)
    output.parts.push({ id, sessionID, messageID: last.messageID, type: "text", text: additionalContext, synthetic: true })
  }

  return {
    "chat.message": async (input, output) => {
      const session = input.sessionID
      if (children.has(session)) return
      const text = output.parts.filter((part) => part.type === "text" && !part.synthetic).map((part) => part.text).join("\n")
      const about = { session_id: session, cwd: directory }
      if (!started.has(session)) {
        started.add(session)
        await addContext(session, output, "session-start", about)
      }
      await addContext(session, output, "prompt", { ...about, prompt: text, turn_id: output.message?.id })
    },
    "tool.execute.after": async (input, output) => {
      if (input.tool !== "bash" || children.has(input.sessionID)) return
      await call("tool", {
        session_id: input.sessionID,
        cwd: directory,
        tool_use_id: input.callID,
        command: input.args?.command ?? output.title,
        output: output.output,
        exit: output.metadata?.exit,
      })
    },
    event: async ({ event }) => {
      const about = event.properties ?? {}
      if (event.type === "session.created" && about.info?.parentID) children.add(about.info.id)
      if (event.type !== "session.idle" || children.has(about.sessionID)) return
      const { data } = await client.session.messages({ path: { id: about.sessionID } }).catch(() => ({}))
      const last = (data ?? []).filter((message) => message.info.role === "assistant").at(-1)
      const text = (last?.parts ?? []).filter((part) => part.type === "text").map((part) => part.text).join("\n")
      if (text) await call("answer", { session_id: about.sessionID, cwd: directory, turn_id: last.info.id, answer: text })
    },
  }
}
