"""Text: data sets, vocabularies, language models and text classifiers."""
