"""From records of the topic's table to changes of a projection's rows."""
