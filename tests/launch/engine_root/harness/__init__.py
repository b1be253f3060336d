raise ImportError("the subject's own harness must stay hidden")
