// Keys, dialogs, messages and the item beside the list. Every page works without this file, only less swiftly.
(() => {
  "use strict";
  const $ = (selector, within = document) => within.querySelector(selector);
  const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];
  const dialog = $("#dialog");
  const help = $("#help");
  const toasts = $("#toasts");
  const base = document.body.dataset.base;
  const wide = matchMedia("(min-width: 1180px)");

  // Messages lie above an open dialog: a popover that opens later is on top.
  function say(text) {
    const line = document.createElement("p");
    line.className = "toast";
    line.textContent = text;
    toasts.append(line);
    show(line);
  }
  function show(line) {
    if (toasts.matches(":popover-open")) toasts.hidePopover();
    toasts.showPopover();
    setTimeout(() => {
      line.remove();
      if (!toasts.children.length && toasts.matches(":popover-open")) toasts.hidePopover();
    }, 3500 + 40 * line.textContent.length);
  }
  $$(".toast", toasts).forEach(show);
  document.body.addEventListener("said", (event) => say(event.detail.text));

  // Dialogs: htmx fills #dialog, which then opens.
  document.body.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target === dialog && !dialog.open) dialog.showModal();
    const first = event.detail.target.matches("#dialog, #erase-step") && $("[autofocus]", event.detail.target);
    if (first) first.focus();
    if (event.detail.target.id === "peek") event.detail.target.scrollTop = 0;
  });
  for (const box of [dialog, help]) {
    box.addEventListener("click", (event) => {
      if (event.target === box || event.target.closest("[data-close]")) box.close();
    });
  }
  document.body.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.xhr.status < 400 && event.detail.successful && event.target.matches("[data-closes]")) dialog.close();
  });
  // An answer with an error is shown where the person looks: in the dialog or form, else above the page.
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.xhr.status < 400) return;
    if (event.detail.xhr.status === 401) return location.reload();  // started anew, with another token
    const sender = event.detail.requestConfig.elt;
    const slot = [sender.closest("form"), sender.closest("dialog")].map((box) => box && $(".form-error", box)).find(Boolean);
    event.detail.shouldSwap = true;
    event.detail.isError = false;
    event.detail.swapOverride = "innerHTML";
    event.detail.target = slot || problemSlot();
  });
  // A task refreshes itself, but not while somebody reads one of its steps.
  document.body.addEventListener("htmx:beforeRequest", (event) => {
    if (event.target.id === "task" && $("details[open]", event.target)) event.preventDefault();
  });
  document.body.addEventListener("htmx:sendError", () => say("engrain ui does not answer: is it still running?"));
  function problemSlot() {
    let slot = $("#problem");
    if (!slot) {
      slot = document.createElement("div");
      slot.id = "problem";
      $("#main").prepend(slot);
    }
    return slot;
  }

  // The item beside the list, where there is room for it.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-peek]");
    const row = event.target.closest("[data-row]");
    if (row) choose(row, false);
    if (link && wide.matches && $("#peek") && !event.metaKey && !event.ctrlKey && !event.shiftKey && event.button === 0) {
      event.preventDefault();
      htmx.ajax("GET", link.getAttribute("href"), { target: "#peek", swap: "innerHTML" });
    }
  });

  // Rows: j and k.
  const rows = () => $$("[data-row]", dialog.open ? dialog : $("#main"));
  function choose(row, move = true) {
    $$(".current[data-row]").forEach((one) => one.classList.remove("current"));
    row.classList.add("current");
    const target = row.matches("a") ? row : $("a, summary", row);
    if (move) {
      if (target) target.focus({ preventScroll: true });
      row.scrollIntoView({ block: "nearest" });
      const box = row.getBoundingClientRect();
      if (box.top < 110 && !dialog.open) scrollBy(0, box.top - 110);
    }
  }
  function step(by) {
    const all = rows();
    if (!all.length) return;
    const at = all.findIndex((row) => row.classList.contains("current"));
    choose(all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + by))]);
  }

  // Keys. `g` waits a moment for the letter of a page.
  const ITEM_KEYS = { p: "#item [data-pin]", e: "#item [data-edit]", c: "#item [data-correct]", f: "#item [data-forget]" };
  let waiting = 0;
  document.addEventListener("keydown", (event) => {
    // A field of a dialog that was just closed has the focus for a moment longer.
    const typing = event.target.checkVisibility() &&
      event.target.matches("input:not([type=checkbox]):not([type=radio]):not([type=range]), textarea, select");
    if (event.key === "Escape") return leave(event, typing);
    if (typing || event.metaKey || event.ctrlKey || event.altKey) return;
    if (waiting) {
      clearTimeout(waiting);
      waiting = 0;
      if (event.key === "m") return act(event, () => $(".switcher").click());
      const link = $(`.side a[data-key="${CSS.escape(event.key)}"]`);
      if (link) act(event, () => location.assign(link.href));
      return;
    }
    if (event.key === "g") waiting = setTimeout(() => (waiting = 0), 1200);
    else if (event.key === "j") act(event, () => step(1));
    else if (event.key === "k") act(event, () => step(-1));
    else if (event.key === "o") act(event, () => $(".current[data-row] a")?.click());
    else if (ITEM_KEYS[event.key] && !dialog.open && $(ITEM_KEYS[event.key])) act(event, () => $(ITEM_KEYS[event.key]).click());
    else if (event.key === "?") act(event, () => (help.open ? help.close() : help.showModal()));
    else if (event.key === "/" && !dialog.open) act(event, () => ($("[data-slash-first]") || $("#filter-text") || $("[data-slash]")).focus());
    else if (event.key === "n" && !dialog.open) act(event, () => ($("[data-new]") || { click: () => htmx.ajax("GET", base + "remember", "#dialog") }).click());
  });
  function act(event, run) {
    event.preventDefault();
    run();
  }
  function leave(event, typing) {
    if ($("#side").classList.contains("open")) toggleMenu(false);
    else if (typing && !event.target.closest("dialog")) event.target.blur();
    else $$(".current[data-row]").forEach((row) => row.classList.remove("current"));
  }

  // Theme, menu, copying, sliders, and the name that must be typed.
  function toggleMenu(open) {
    $("#side").classList.toggle("open", open);
    $("[data-menu]").setAttribute("aria-expanded", String(open));
  }
  document.addEventListener("click", (event) => {
    const hit = (selector) => event.target.closest(selector);
    if (hit("[data-theme-switch]")) {
      const dark = getComputedStyle(document.documentElement).colorScheme === "dark" ||
        (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
      document.documentElement.dataset.theme = dark ? "light" : "dark";
      localStorage.setItem("engrain-theme", document.documentElement.dataset.theme);
      document.dispatchEvent(new CustomEvent("theme"));
    } else if (hit("[data-help]")) help.showModal();
    else if (hit("[data-menu]")) toggleMenu(!$("#side").classList.contains("open"));
    else if (hit("[data-copy]")) copy(hit("[data-copy]").dataset.copy);
    else if (hit("[data-copy-from]")) copy($(hit("[data-copy-from]").dataset.copyFrom).textContent);
  });
  function copy(text) {
    navigator.clipboard.writeText(text).then(() => say("Copied."), () => say("The browser did not allow copying."));
  }
  document.addEventListener("input", (event) => {
    const field = event.target;
    const out = field.form && $(`output[data-value-of="${field.name}"]`, field.form);
    if (out) out.textContent = Number(field.value).toFixed(2);
    if (field.dataset.mustMatch !== undefined) $("[data-guarded]", field.form).disabled = field.value !== field.dataset.mustMatch;
  });
  document.addEventListener("change", (event) => {
    if (event.target.name !== "target") return;
    const needed = $("[data-needs]", event.target.form);
    needed.hidden = !needed.dataset.needs.split(" ").includes(event.target.value);
    $("input", needed).required = !needed.hidden;
    $("#erase-step").replaceChildren();
  });
  $$("[data-needs]").forEach((part) => (part.hidden = true));
})();
