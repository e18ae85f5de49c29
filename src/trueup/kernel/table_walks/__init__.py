"""Steps of Markov chains over tables with given sums."""
