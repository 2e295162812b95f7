-- What doctor asks: frames of types that are not known. There are few.
CREATE INDEX frames_unknown ON frames (logged_at) WHERE outcome = 'unknown';
