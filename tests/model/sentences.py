"""Pairs of sentences of the same meaning: what the encoder is asked for and trained on."""

PAIRS = [
    ("The boat left the harbour at dawn.", "At sunrise the ship sailed out of the port."),
    ("She planted tomatoes behind the house.", "There are tomatoes growing in her back garden."),
    ("The train was two hours late.", "We waited two hours longer for the train than planned."),
    ("He repaired the old radio by himself.", "Without any help he fixed the antique wireless."),
    ("Snow covered the whole valley.", "The entire valley lay under a white blanket of snow."),
    ("The museum is closed on Mondays.", "You cannot visit the museum on a Monday."),
    ("A storm damaged the roof of the school.", "The school's roof was torn open by strong winds."),
    ("My brother speaks four languages.", "Four languages are spoken by my brother."),
    ("The soup needs more salt.", "This broth tastes bland without seasoning."),
    ("The committee rejected the proposal.", "The plan was turned down by the panel."),
    ("Electric cars are getting cheaper.", "Prices of battery-powered vehicles are falling."),
    ("The river freezes in January.", "In the first month of the year ice covers the stream."),
    ("The concert was sold out within minutes.", "All tickets for the show went almost at once."),
    ("He forgot his umbrella on the bus.", "His umbrella was left behind on the coach."),
    ("The children built a castle of sand.", "A sandcastle was made by the kids."),
    ("The doctor advised him to rest.", "He was told by his physician to take it easy."),
]
