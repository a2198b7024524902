"use strict";
// A page of an environment: copies commands, and marks what has ended by the reader's clock. The page is complete without it.
for (const button of document.querySelectorAll("button[data-copies]")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    const said = button.textContent;
    try {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copies).textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => { button.textContent = said; }, 1500);
  });
}
const today = new Date().toISOString();
for (const end of document.querySelectorAll("time[data-ends]")) {
  const day = end.getAttribute("datetime");
  const isOver = today.slice(0, day.length) > day;
  end.after(Object.assign(document.createElement("span"), { className: `pill is-${isOver ? "fail" : "pass"}`, textContent: isOver ? "ended" : "supported" }));
}
