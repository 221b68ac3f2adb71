"""Five papers on sentence representations as a library: text drawn as pixels, encoders, training, evaluation.

`sentnb.encoders` encodes, `sentnb.training` trains, `sentnb.evaluation` measures, `sentnb.corpora` has the data,
`sentnb.results` keeps the evidence; the notebooks in nbs/ show each at work, from nbs/index.ipynb on."""
__version__ = "0.1.0"
