"""Many trials over a cluster with Ray Tune; the results folder says what is done, Tune does not."""
