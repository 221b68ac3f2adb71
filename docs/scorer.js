// The order of the results of a search: titles first; at the same score pages of the library and how-to pages
// before experiments, and the executed copies of experiments (figures/) last.
var Scorer = {
  score: ([page, title, anchor, description, score]) => {
    if (page.startsWith("figures/")) return score - 20;
    return page.startsWith("nbs/api/") || page.startsWith("nbs/howto/") ? score + 2 : score;
  },
  objNameMatch: 11, objPartialMatch: 6, objPrio: {0: 15, 1: 5, 2: -5}, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
