COMMENT ON VIEW token_usage IS
    'The tokens that each conversation took, by model, as the ends of its runs report them; of a run without an '
    'ordinary end what is known (runs.usage_partial).';
