// What htmx does not do: say that the stream is broken, and move by keys.
(function () {
  "use strict";
  var lost = document.getElementById("lost");
  function show(broken) { if (lost) { lost.hidden = !broken; } }
  document.addEventListener("htmx:sseError", function () { show(true); });
  document.addEventListener("htmx:sseOpen", function () { show(false); });

  // "/" goes to the filter; j and k go through the rows that are links.
  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) { return; }
    var filter = document.querySelector("form.filter input[type=search]");
    if (event.key === "/" && filter) {
      event.preventDefault();
      filter.focus();
      return;
    }
    if (event.key !== "j" && event.key !== "k") { return; }
    var links = Array.prototype.slice.call(document.querySelectorAll("table.list tbody th a, table.list tbody td:first-child a"));
    if (links.length === 0) { return; }
    var at = links.indexOf(document.activeElement) + (event.key === "j" ? 1 : -1);
    links[Math.max(0, Math.min(links.length - 1, at))].focus();
  });
})();
