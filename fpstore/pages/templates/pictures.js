"use strict";
const boxes = [...document.querySelectorAll("input[data-id]")];
const button = document.getElementById("save"), state = document.getElementById("state");

function count() {
  const removed = boxes.filter((box) => !box.checked).length;
  state.textContent = `${removed} of ${boxes.length} pictures on this page go`;
}

document.addEventListener("change", count);
button.addEventListener("click", () => {
  const lines = boxes.map((box) =>
    JSON.stringify({ id: JSON.parse(box.dataset.id), choice: box.checked ? "keep" : "remove" }) + "\n");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(lines, { type: "application/jsonl" }));
  link.download = "choices.jsonl";
  link.click();
});
button.hidden = false;
count();
