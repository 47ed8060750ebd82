"""The report on a built engine as one page of HTML. All that it says stands in the engine's manifest."""
