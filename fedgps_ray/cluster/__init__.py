"""The one room for Ray: a session, the actors of a trial, and what is done when some are lost."""
