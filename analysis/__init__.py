"""From a results folder to tables and figures, with pandas."""
