"""Tables, figures and HTML pages, made from records only; the pages need no network."""
